//! Blocking clients for programs without async: the async clients, awaited by [`run`].
//!
//! ```no_run
//! use switchboard::{blocking, Codec, ClientMethod};
//! # fn example(greet: &'static ClientMethod) -> switchboard::Result<()> {
//! let channel = blocking::connect("tcp://127.0.0.1:8080")?;
//! // With a generated client this is `blocking::run(GreeterClient::new(&channel).greet(request))`.
//! # let request = switchboard::codec::serde::encode(&"world", Codec::Json);
//! # let greeting = channel.unary(greet, Codec::Json, request, switchboard::codec::serde::decode::<String>);
//! let greeting = blocking::run(greeting)?;
//! println!("{}", *greeting);
//! # Ok(())
//! # }
//! ```
//!
//! Streams work alike: `run(stream.next())` waits for one message. Connections live on one thread, which the
//! first use starts and which ends with the process. Any number of threads may call concurrently.

use std::{future::IntoFuture, pin::pin, sync::OnceLock, thread};
use switchboard_client::Channel;
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::runtime::{Builder, Handle};

/// Opens a channel to `url`, as [`Channel::connect`] does, and waits for its first connection.
///
/// # Errors
/// Returns the errors of [`Channel::connect`] and of [`run`].
pub fn connect(url: &str) -> Result<Channel> {
    run(Channel::connect(url))
}

/// Runs a call, or another future that returns a [`Result`], and blocks this thread until it ends.
///
/// Channels that are used here must come from [`connect`] or from other work that was run here: a channel
/// makes no progress while its runtime is not driven.
///
/// # Errors
/// Returns the errors of `work`. Returns `FailedPrecondition` on a thread of an async runtime, including
/// threads of `spawn_blocking`; await `work` there, because blocking would stop the thread that makes
/// progress. Returns `Unavailable` if the operating system cannot create a thread.
pub fn run<T>(work: impl IntoFuture<Output = Result<T>>) -> Result<T> {
    if Handle::try_current().is_ok() {
        return Err(Status::failed_precondition(
            "switchboard::blocking was called from async code, whose thread it would stop; await the call \
             instead, or call from a thread of std::thread::spawn",
        ));
    }
    let runtime = runtime()?;
    let work = pin!(work.into_future());
    // The background thread drives the connections; this one polls `work` and parks.
    runtime.block_on(work)
}

/// Returns the runtime of all blocking calls; one thread drives it.
fn runtime() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<std::result::Result<Handle, String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        thread::Builder::new()
            .name("switchboard-blocking".to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .map_err(|error| error.to_string())?;
        Ok(handle)
    });
    started.as_ref().map_err(|why| {
        Status::unavailable(format!("the operating system gives no thread for blocking calls: {why}"))
    })
}
