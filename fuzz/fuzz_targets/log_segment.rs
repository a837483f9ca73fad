//! `switchboard_message::log_segment` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_message::log_segment(data));
