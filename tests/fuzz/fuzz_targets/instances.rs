//! `cargo fuzz run instances`: see `taskwork_fuzz::instances`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::instances(bytes));
