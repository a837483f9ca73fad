//! `switchboard_wire::fuzzing::erpc_input` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::erpc_input(data));
