//! `cargo fuzz run wire`: see `taskwork_fuzz::wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::wire(bytes));
