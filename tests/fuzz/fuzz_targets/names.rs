//! `cargo fuzz run names`: see `taskwork_fuzz::names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::names(bytes));
