//! Load from the threads of a plain multi-thread tokio runtime with work stealing.

use super::{client::ClientArgs, stream::Stream};
use std::{
    pin::Pin,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use switchboard_cli::bench::{callers, load::Load, measure::Measured};
use tokio::{runtime, time};

/// Measures `load` once, on the requested number of connections, or one for each thread.
///
/// # Errors
/// When there is no runtime or no connection. Calls that fail are counted in the result.
pub(super) fn measure<L: Load>(load: &L, args: &ClientArgs) -> Result<Measured, String> {
    let time = args.time()?;
    let (report, reports) = mpsc::channel();
    let report = Arc::new(report);
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_stop(move || {
            if let Some(tally) = callers::take_tally() {
                // The receiver lives until all threads have stopped.
                let _ = report.send(tally.finish());
            }
        })
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let calls: Pin<Box<dyn Future<Output = Result<usize, String>> + '_>> = Box::pin(call(load, args, time));
    let unfinished = runtime.block_on(calls)?;
    // Threads report when they stop.
    drop(runtime);
    let mut total = Measured::new();
    for share in reports {
        total.merge(share);
    }
    for _ in 0..unfinished {
        total.fail(format!("no reply for {} seconds", PATIENCE.as_secs()));
    }
    Ok(total)
}

/// Runs `stream` once.
///
/// # Errors
/// The errors of [`Stream::run`].
pub(super) fn stream(stream: Stream) -> Result<Measured, String> {
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let running = runtime.spawn(stream.run());
    runtime.block_on(running).map_err(|error| format!("the stream panicked: {error}"))?
}

/// Time after the end for which a caller may wait for its last reply.
const PATIENCE: Duration = Duration::from_secs(11);

/// Runs all callers; returns how many did not end.
async fn call<L: Load>(load: &L, args: &ClientArgs, measured: Duration) -> Result<usize, String> {
    let threads = runtime::Handle::current().metrics().num_workers();
    let wanted = if args.connections > 0 { args.connections as usize } else { threads };
    let mut connections = Vec::with_capacity(wanted);
    for _ in 0..wanted.min(args.callers as usize) {
        connections.push(load.connect().await?);
    }
    let begin = Instant::now() + args.warm_up();
    let end = begin + measured;
    callers::share_tallies(begin, end);
    let running: Vec<_> = (0..args.callers as usize)
        .map(|at| L::spawn(load.caller(&connections[at % connections.len()])))
        .collect();
    let mut unfinished = 0;
    for caller in running {
        unfinished += usize::from(time::timeout_at((end + PATIENCE).into(), caller).await.is_err());
    }
    Ok(unfinished)
}
