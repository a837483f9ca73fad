//! The services of `switchboard bench`, with connectrpc on both sides.

mod client;
mod server;
mod transport;

/// Code that connectrpc and buffa generate from the schema.
mod proto {
    connectrpc::include_generated!();
    pub(crate) use bench::v1::*;
}

use buffa::{Message, MessageView, ViewEncode};
use proto::{BenchmarkMessage, BenchmarkMessageView};
use rustpeer::{Cost, Counting, MiMalloc};
use std::{hint::black_box, process::ExitCode};

/// Bytes that may be in flight on a stream or a connection before the other side has read them.
const WINDOW: u32 = 16 << 20;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() -> ExitCode {
    rustpeer::run::<client::Connection, server::Bench>(codecs)
}

fn codecs() -> Vec<Cost> {
    let message = rustpeer::benchmark_message!(BenchmarkMessage);
    let bytes = message.encode_to_vec();
    let view = BenchmarkMessageView::decode_view(&bytes).expect("it was encoded");
    vec![
        Cost::measure(
            "buffa",
            |buffer| message.encode(buffer),
            |bytes| drop(black_box(BenchmarkMessage::decode_from_slice(bytes).expect("it was encoded"))),
        ),
        Cost::measure(
            "buffa, view",
            |buffer| view.encode(buffer),
            |bytes| drop(black_box(BenchmarkMessageView::decode_view(bytes).expect("it was encoded"))),
        ),
    ]
}
