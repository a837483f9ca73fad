//! The workloads of `switchboard bench bus` for a library of sockets in Rust: the library implements [`Sockets`], its
//! program calls [`main`]. `bench/peers/README.md` has the command line.

mod arguments;
mod tally;
mod workloads;

use bytes::Bytes;
use std::{fmt::Display, future::Future, process::ExitCode};

/// The allocator of Switchboard's binary: its rivals in Rust have it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Socket types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Dealer,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Router,
    Sub,
}

/// Result of a library.
pub type Result<T> = std::result::Result<T, String>;

/// Converts an error of a library.
pub fn failed(error: impl Display) -> String {
    error.to_string()
}

/// A library of sockets.
pub trait Sockets: Clone + Send + Sync + 'static {
    type Socket: Send + Sync + 'static;
    type Message: Send;

    /// Creates a socket with queues of 1000 messages. PUB waits for slow subscribers, SUB gets every message.
    fn open(&self, kind: Kind) -> impl Future<Output = Result<Self::Socket>> + Send;
    /// Binds a free port and returns the endpoint.
    fn bind(&self, socket: &Self::Socket, endpoint: &str) -> impl Future<Output = Result<String>> + Send;
    fn connect(&self, socket: &Self::Socket, endpoint: &str) -> impl Future<Output = Result<()>> + Send;
    fn send(&self, socket: &Self::Socket, body: Bytes) -> impl Future<Output = Result<()>> + Send;
    fn receive(&self, socket: &Self::Socket) -> impl Future<Output = Result<Self::Message>> + Send;
    /// Returns the last frame.
    fn body<'a>(&self, message: &'a Self::Message) -> &'a [u8];
    /// Receives a message and sends it back, with its routing id.
    fn echo(&self, socket: &Self::Socket) -> impl Future<Output = Result<()>> + Send;
}

/// Runs one side on a runtime of one thread, which is on one core.
pub fn main<S: Sockets>(create: impl FnOnce() -> Result<S>) -> ExitCode {
    let run = || {
        let arguments = arguments::Arguments::parse(std::env::args().skip(1))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async move { workloads::run(create()?, arguments).await })
    };
    match run() {
        // Sockets are not closed one by one: the other side does not end before this process.
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
