//! `switchboard_wire::fuzzing::centrifuge_input` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::centrifuge_input(data));
