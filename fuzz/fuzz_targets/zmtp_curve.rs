//! `switchboard_wire::fuzzing::zmtp_curve` on the bytes of the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| switchboard_wire::fuzzing::zmtp_curve(data));
