//! `switchboard_wire::fuzzing::http2_server_input` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::http2_server_input(data));
