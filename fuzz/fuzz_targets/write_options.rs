#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| anyrecord_fuzz::round_trip::write_options(data));
