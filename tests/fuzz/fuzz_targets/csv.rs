//! `cargo fuzz run csv`: see `taskwork_fuzz::csv`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::csv(bytes));
