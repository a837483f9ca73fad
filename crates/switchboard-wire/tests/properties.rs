//! Checks the properties of `switchboard_wire::fuzzing` on seeded random bytes.
//!
//! A failure prints its seed; `PROPERTY_SEED=N` runs only that one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use switchboard_wire::fuzzing;

const SEEDS: u64 = 2000;

#[test]
fn server_takes_any_bytes() {
    check(fuzzing::server_input);
}

#[test]
fn client_takes_any_bytes() {
    check(fuzzing::client_input);
}

#[test]
fn native_machines_understand_each_other() {
    check(fuzzing::conversation);
}

#[test]
fn metadata_survives_the_wire() {
    check(fuzzing::metadata);
}

#[test]
fn decisions_of_the_sniffer_are_final() {
    check(fuzzing::sniff);
}

#[test]
fn baidu_std_takes_any_bytes() {
    check(fuzzing::baidu_input);
}

#[test]
fn baidu_std_machines_understand_each_other() {
    check(fuzzing::baidu_conversation);
}

#[test]
fn erpc_takes_any_bytes() {
    check(fuzzing::erpc_input);
}

#[test]
fn erpc_machines_understand_each_other() {
    check(fuzzing::erpc_conversation);
}

#[test]
fn messages_of_flatbuffers_are_read_as_they_are_written() {
    check(fuzzing::flatbuffers_message);
}

#[test]
fn baidu_streams() {
    check(fuzzing::baidu_streams);
}

#[test]
fn jsonrpc_takes_any_bytes() {
    check(fuzzing::jsonrpc_input);
}

#[test]
fn compressed_header_fields_are_decoded_within_limits() {
    check(fuzzing::hpack);
}

#[test]
fn goim_takes_any_bytes() {
    check(fuzzing::goim_input);
}

#[test]
fn goim_machines_understand_each_other() {
    check(fuzzing::goim_conversation);
}

#[test]
fn http2_client_takes_any_bytes() {
    check(fuzzing::http2_client_input);
}

#[test]
fn http2_machines_understand_each_other() {
    check(fuzzing::http2_conversation);
}

#[test]
fn http2_takes_any_bytes() {
    check(fuzzing::http2_server_input);
}

#[test]
fn kiss_rpc_takes_any_bytes() {
    check(fuzzing::kiss_input);
}

#[test]
fn kiss_rpc_machines_understand_each_other() {
    check(fuzzing::kiss_conversation);
}

#[test]
fn resp_takes_any_bytes() {
    check(fuzzing::resp_input);
}

#[test]
fn resp_machines_understand_each_other() {
    check(fuzzing::resp_conversation);
}

#[test]
fn rpcx_server_takes_any_bytes() {
    check(fuzzing::rpcx_server_input);
}

#[test]
fn rpcx_client_takes_any_bytes() {
    check(fuzzing::rpcx_client_input);
}

#[test]
fn rpcx_machines_understand_each_other() {
    check(fuzzing::rpcx_conversation);
}

#[test]
fn websocket_takes_any_bytes() {
    check(fuzzing::websocket_input);
}

#[test]
fn websockets_understand_each_other() {
    check(fuzzing::websocket_conversation);
}

#[test]
fn zmtp_takes_any_bytes() {
    check(fuzzing::zmtp_input);
}

#[test]
fn zmtp_machines_understand_each_other() {
    check(fuzzing::zmtp_conversation);
}

#[test]
fn zmtp_boxes_that_are_changed_or_moved_are_refused() {
    check(fuzzing::zmtp_curve);
}

#[test]
fn centrifuge_takes_any_bytes() {
    check(fuzzing::centrifuge_input);
}

#[test]
fn centrifuge_machines_understand_each_other() {
    check(fuzzing::centrifuge_conversation);
}

#[test]
fn mqtt_takes_any_bytes() {
    check(fuzzing::mqtt_input);
}

#[test]
fn mqtt_machines_understand_each_other() {
    check(fuzzing::mqtt_conversation);
}

#[test]
fn nats_takes_any_bytes() {
    check(fuzzing::nats_input);
}

#[test]
fn nats_machines_understand_each_other() {
    check(fuzzing::nats_conversation);
}

#[test]
fn thrift_takes_any_bytes() {
    check(fuzzing::thrift_input);
}

#[test]
fn all_readers_agree_on_structs_of_thrift() {
    check(fuzzing::thrift_struct);
}

#[test]
fn thrift_machines_understand_each_other() {
    check(fuzzing::thrift_conversation);
}

fn check(property: fn(&[u8])) {
    let only = std::env::var("PROPERTY_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in only.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let data = random_bytes(seed);
        if catch_unwind(AssertUnwindSafe(|| property(&data))).is_err() {
            panic!("fails with PROPERTY_SEED={seed}, {} bytes", data.len());
        }
    }
}

/// SplitMix64: small, and random enough for these decisions.
fn random_bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let len = (next() % 600) as usize;
    (0..len).map(|_| next() as u8).collect()
}
