//! `switchboard_wire::fuzzing::centrifuge_conversation` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::centrifuge_conversation(data));
