#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| anyrecord_fuzz::side_index::side_index(data));
