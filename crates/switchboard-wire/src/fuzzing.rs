//! Properties that hold for any bytes, shared by the ordinary tests and the fuzzer.
//!
//! Every function takes arbitrary bytes, draws its [`Choices`] from them and panics when its property does not hold.
//! `tests/properties.rs` runs them on seeded random bytes, `fuzz/fuzz_targets` on the fuzzer's input.

mod baidu;
mod centrifuge;
mod choices;
mod conversation;
mod erpc;
mod feed;
mod flatbuffers;
mod goim;
mod hpack;
mod http2;
mod http2_client;
mod http2_conversation;
mod jsonrpc;
mod kiss;
mod machines;
mod mqtt;
mod nats;
mod outcomes;
mod resp;
mod rpcx;
mod thrift;
mod websocket;
mod zmtp;

pub use baidu::{baidu_conversation, baidu_input, baidu_streams};
pub use centrifuge::{centrifuge_conversation, centrifuge_input};
pub use choices::Choices;
pub use conversation::conversation;
pub use erpc::{erpc_conversation, erpc_input};
pub use flatbuffers::flatbuffers_message;
pub use goim::{goim_conversation, goim_input};
pub use hpack::hpack;
pub use http2::http2_server_input;
pub use http2_client::http2_client_input;
pub use http2_conversation::http2_conversation;
pub use jsonrpc::jsonrpc_input;
pub use kiss::{kiss_conversation, kiss_input};
pub use machines::{client_input, server_input};
pub use mqtt::{mqtt_conversation, mqtt_input};
pub use nats::{nats_conversation, nats_input};
pub use resp::{resp_conversation, resp_input};
pub use rpcx::{rpcx_client_input, rpcx_conversation, rpcx_server_input};
pub use thrift::{thrift_conversation, thrift_input, thrift_struct};
pub use websocket::{websocket_conversation, websocket_input};
pub use zmtp::{zmtp_conversation, zmtp_curve, zmtp_input};

pub use crate::work::take as take_work;

use crate::{
    Metadata, WireSet,
    sniff::{self, Sniffed},
    spec::PEEK_MAX,
};
use bytes::BytesMut;

/// Checks that an accepted metadata block is encoded as it was read, and that a constructed list survives the wire.
///
/// # Panics
/// If the property does not hold.
pub fn metadata(data: &[u8]) {
    let mut choices = Choices::new(data);
    let entries_max = usize::from(choices.byte() % 9);
    let built = choices.metadata(8);
    let mut block = BytesMut::new();
    built.encode(&mut block);
    assert_eq!(block.len(), built.encoded_len());
    match Metadata::decode(&block, entries_max) {
        Ok(back) => assert_eq!(back, built),
        Err(error) => assert!(built.len() > entries_max, "{error}"),
    }
    // A damaged block, and arbitrary bytes.
    if !block.is_empty() {
        let at = usize::from(choices.short()) % block.len();
        block[at] ^= choices.byte();
        survives(&block, entries_max);
    }
    survives(choices.rest(), entries_max);
}

fn survives(block: &[u8], entries_max: usize) {
    let Ok(metadata) = Metadata::decode(block, entries_max) else { return };
    assert!(metadata.len() <= entries_max);
    let mut back = BytesMut::new();
    metadata.encode(&mut back);
    assert_eq!(back, block);
}

/// Checks that a decision on a prefix holds for all bytes that begin with it.
///
/// # Panics
/// If the property does not hold.
pub fn sniff(data: &[u8]) {
    let mut choices = Choices::new(data);
    let starts: &[&[u8]] = &[
        b"",
        b"\xF5SWB\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /",
        b"PRI * HTTP",
        b"GET",
        b"PRPC",
        b"\0\0\0\x39\x80\x01\0\x01",
        b"\0\0\0\x39\x0f\xff\0\0",
        b"\0\0\0\x39\0\0\0\x03add",
        b"\0\0\0\x39\0\x05zik0z\x01",
        b"\0\0\0\x39\x01g\x1f\x8b",
        b"\xFF\xFF\x14\x01",
    ];
    let start = starts[usize::from(choices.byte()) % starts.len()];
    let start = &start[..usize::from(choices.byte()) % (start.len() + 1)];
    let bytes = [start, choices.rest()].concat();
    let mut decided = None;
    for end in 0..=bytes.len().min(2 * PEEK_MAX) {
        let verdict = sniff::sniff(&bytes[..end], WireSet::NONE);
        match decided {
            Some(before) => assert_eq!(verdict, before, "after {end} bytes of {bytes:02x?}"),
            None if verdict != Sniffed::More => decided = Some(verdict),
            None => assert!(end < PEEK_MAX, "undecided after {end} bytes of {bytes:02x?}"),
        }
    }
}
