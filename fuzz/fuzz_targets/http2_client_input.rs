//! `switchboard_wire::fuzzing::http2_client_input` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::http2_client_input(data));
