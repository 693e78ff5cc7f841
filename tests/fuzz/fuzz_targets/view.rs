//! `cargo fuzz run view`: see `taskwork_fuzz::view`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::view(bytes));
