//! `cargo fuzz run workflows`: see `taskwork_fuzz::workflows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::workflows(bytes));
