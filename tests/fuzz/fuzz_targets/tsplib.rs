//! `cargo fuzz run tsplib`: see `taskwork_fuzz::tsplib`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskwork_fuzz::tsplib(bytes));
