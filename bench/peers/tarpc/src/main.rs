//! The services of `switchboard bench`, with tarpc on both sides: serde, bincode and frames with a length on
//! TCP.

mod client;
mod server;
mod service;
mod transport;

use bincode::Options;
use rustpeer::{Cost, Counting, MiMalloc};
use service::BenchmarkMessage;
use std::{hint::black_box, process::ExitCode};

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting(MiMalloc);

fn main() -> ExitCode {
    rustpeer::run::<client::Connection, server::Bench>(codecs)
}

fn codecs() -> Vec<Cost> {
    let message = rustpeer::benchmark_message!(BenchmarkMessage);
    let decoded = |message: BenchmarkMessage| drop(black_box(message));
    vec![
        Cost::measure(
            "bincode",
            |buffer| transport::options().serialize_into(buffer, &message).expect("it encodes"),
            |bytes| decoded(transport::options().deserialize(bytes).expect("it was encoded")),
        ),
        Cost::measure(
            "bincode, varint",
            |buffer| bincode::DefaultOptions::new().serialize_into(buffer, &message).expect("it encodes"),
            |bytes| decoded(bincode::DefaultOptions::new().deserialize(bytes).expect("it was encoded")),
        ),
        Cost::measure(
            "rmp-serde",
            |buffer| rmp_serde::encode::write(buffer, &message).expect("it encodes"),
            |bytes| decoded(rmp_serde::from_slice(bytes).expect("it was encoded")),
        ),
        Cost::measure(
            "serde_json",
            |buffer| serde_json::to_writer(buffer, &message).expect("it encodes"),
            |bytes| decoded(serde_json::from_slice(bytes).expect("it was encoded")),
        ),
    ]
}
