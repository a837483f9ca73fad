//! The echo of `switchboard bench`, with tonic on both sides: what gRPC in Rust costs elsewhere.
//!
//! `tonic-echo server` prints its address; `tonic-echo client ADDRESS CALLERS [BYTES] [SECONDS]` calls it and prints
//! calls a second with their latencies. Both use one thread a core, each with a current-thread runtime of its own and
//! its own connection, as Switchboard does: a work-stealing runtime is slower.

mod client;
mod server;

use std::process::ExitCode;

/// The message of `bench.v1.Bench/Echo`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Echo {
    /// Comes back as it is.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub payload: Option<prost::bytes::Bytes>,
}

/// The method, as HTTP has it.
const PATH: &str = "/bench.v1.Bench/Echo";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default: f64| arguments.get(at).map_or(Ok(default), |text| text.parse::<f64>());
    match (arguments.as_slice(), number(2, 0.0), number(3, 100.0), number(4, 3.0)) {
        (["server"], ..) => server::serve(cores()),
        (["client", address, _, ..], Ok(callers), Ok(bytes), Ok(seconds)) if callers >= 1.0 => {
            client::measure(address, callers as usize, bytes as usize, seconds);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: tonic-echo server | tonic-echo client ADDRESS CALLERS [BYTES] [SECONDS]");
            ExitCode::from(2)
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}
