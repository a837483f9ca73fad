//! Code that the Rust rivals of `bench-compare` share, so that each of them contains little but
//! its library.
//!
//! A rival implements [`Connection`] (the client's calls) and [`Server`] (serving of accepted connections)
//! and hands both to [`run`]. Read in this order: `arguments` (the command line), `serve` and `callers` (who
//! runs where), `stream` (many messages on one call), `tally` (latencies and the line of results), `message`
//! and `codecs`.

mod allocation;
mod arguments;
mod callers;
mod codecs;
mod message;
mod runtime;
mod serve;
mod stream;
mod tally;

pub use allocation::Counting;
pub use callers::{Connection, DEADLINE, MESSAGE_BYTES_MAX};
pub use codecs::Cost;
pub use message::{FIELD3, NUMBER, TEXT};
pub use mimalloc::MiMalloc;
pub use serve::{Accepted, Server};
pub use stream::{Messages, Replies};

use arguments::{Arguments, Command};
use std::process::ExitCode;

/// Does what the command line says; `codecs` measures the codecs of the rival.
pub fn run<C: Connection, S: Server>(codecs: impl FnOnce() -> Vec<Cost>) -> ExitCode {
    let outcome = match Arguments::parse() {
        Ok(Arguments { command: Command::Server(host), runtime, threads, .. }) => {
            serve::serve::<S>(host, runtime, threads)
        }
        Ok(Arguments { command: Command::Client(load), runtime, threads, .. }) => {
            callers::measure::<C>(load, runtime, threads).map(|result| println!("{result}"))
        }
        Ok(Arguments { command: Command::Codecs, .. }) => {
            println!("{}", codecs::report(&codecs()));
            Ok(())
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
