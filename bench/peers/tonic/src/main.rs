//! The services of `switchboard bench`, with tonic on both sides.

mod client;
mod server;

/// Code that tonic and prost generate from the schema.
mod proto {
    tonic::include_proto!("bench.v1");
}

use prost::Message;
use proto::BenchmarkMessage;
use rustpeer::{Cost, Counting, MiMalloc};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() -> ExitCode {
    rustpeer::run::<client::Connection, server::Bench>(codecs)
}

fn codecs() -> Vec<Cost> {
    let message = rustpeer::benchmark_message!(BenchmarkMessage);
    vec![Cost::measure(
        "prost",
        |buffer| message.encode(buffer).expect("a vector has room"),
        |bytes| drop(std::hint::black_box(BenchmarkMessage::decode(bytes).expect("it was encoded"))),
    )]
}
