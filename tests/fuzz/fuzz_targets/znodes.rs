//! `cargo fuzz run znodes`: see `taskwork_fuzz::znodes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::znodes(bytes));
