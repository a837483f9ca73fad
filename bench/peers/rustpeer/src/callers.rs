//! The client's process: callers in a closed loop, each with one call outstanding.

use crate::{
    arguments::{Call, Load, Mode, Until},
    runtime::Runtime,
    stream::{self, Messages, Replies},
    tally::{Latencies, Outcome, Tally},
};
use bytes::Bytes;
use std::{
    future::Future,
    net::SocketAddr,
    sync::{Arc, Barrier, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// The deadline of every call, where a library has deadlines.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Room for the largest echo of the comparison, 10 MB; the default of most libraries is 4 or 8 MiB.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A connection of the rival; a clone is another caller on it. Errors are texts: only the first is shown.
pub trait Connection: Clone + Send + Sync + Sized + 'static {
    /// Connects, without Nagle's delay.
    fn open(address: SocketAddr) -> impl Future<Output = Result<Self, String>> + Send;

    /// Connects for one call alone, where a rival has a cheaper way for that.
    fn open_once(address: SocketAddr) -> impl Future<Output = Result<Self, String>> + Send {
        Self::open(address)
    }

    /// Calls echo and verifies the reply.
    fn echo(&mut self, payload: &Bytes) -> impl Future<Output = Result<(), String>> + Send;

    /// Calls message and verifies the reply.
    fn message(&mut self) -> impl Future<Output = Result<(), String>> + Send;

    /// Sends `messages` on one stream and hands what comes back to `replies`, until both have ended.
    fn stream(
        &mut self,
        _messages: Messages,
        _replies: &mut Replies,
    ) -> impl Future<Output = Result<(), String>> + Send {
        async { Err("this library has no streams".to_owned()) }
    }
}

/// Calls as `load` says; the line of results.
pub(crate) fn measure<C: Connection>(load: Load, runtime: Runtime, threads: usize) -> Result<String, String> {
    let connections = match load.mode {
        Mode::Stream => 1,
        Mode::PerCall => load.callers,
        Mode::Unary => load.connections.unwrap_or(threads * load.addresses.len()).min(load.callers),
    };
    let runtimes = runtime.count(threads).min(connections);
    let load = Arc::new(load);
    let start = Arc::new(Start { ready: Barrier::new(runtimes), at: OnceLock::new() });
    let workers: Vec<_> = (0..runtimes)
        .map(|at| {
            let mine = |of: usize| (0..of).filter(move |each| each % runtimes == at).collect::<Vec<_>>();
            let part = Part { connections: mine(connections), callers: mine(load.callers) };
            let (load, start) = (load.clone(), start.clone());
            thread::spawn(move || work::<C>(&load, &part, runtime, threads, &start))
        })
        .collect();
    let mut outcome = Outcome::default();
    for worker in workers {
        outcome.add(worker.join().map_err(|_| "a thread panicked".to_owned())??);
    }
    Ok(outcome.line())
}

/// Which connections and callers of all belong to a runtime.
struct Part {
    connections: Vec<usize>,
    callers: Vec<usize>,
}

/// All threads begin at once, when the last has connected.
struct Start {
    ready: Barrier,
    at: OnceLock<Instant>,
}

/// One runtime of the client.
fn work<C: Connection>(
    load: &Arc<Load>,
    part: &Part,
    runtime: Runtime,
    threads: usize,
    start: &Start,
) -> Result<Outcome, String> {
    let runtime = runtime.start(threads)?;
    let connected = runtime.block_on(connect::<C>(load, part));
    start.ready.wait();
    let connections = connected?;
    let begin = *start.at.get_or_init(Instant::now) + load.warm_up;
    let latencies = Arc::new(Mutex::new(Latencies::new(begin)));
    runtime.block_on(async {
        if load.mode == Mode::Stream {
            return stream::call(connections[0].clone(), load, begin, &latencies).await;
        }
        let callers: Vec<_> = (part.callers.iter().enumerate())
            .map(|(at, number)| {
                let caller = Caller {
                    connection: connections.get(at % connections.len().max(1)).cloned(),
                    address: load.addresses[number % load.addresses.len()],
                    load: load.clone(),
                    payload: payload(load.bytes),
                    limit: Limit::of(load, *number, begin),
                    tally: Tally::new(&latencies),
                };
                tokio::spawn(caller.run())
            })
            .collect();
        for caller in callers {
            caller.await.map_err(|error| format!("a caller ended badly: {error}"))?;
        }
        Ok(())
    })?;
    let outcome = latencies.lock().map_err(|error| error.to_string())?.take();
    Ok(outcome)
}

async fn connect<C: Connection>(load: &Load, part: &Part) -> Result<Vec<C>, String> {
    let mut connections = Vec::new();
    if load.mode != Mode::PerCall {
        for number in &part.connections {
            connections.push(C::open(load.addresses[number % load.addresses.len()]).await?);
        }
    }
    Ok(connections)
}

/// The payload of the echo.
pub(crate) fn payload(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// A caller: its next call begins when the last is answered.
struct Caller<C> {
    connection: Option<C>,
    address: SocketAddr,
    load: Arc<Load>,
    payload: Bytes,
    limit: Limit,
    tally: Tally,
}

impl<C: Connection> Caller<C> {
    async fn run(mut self) {
        let mut from = Instant::now();
        while self.limit.allows(from) {
            let outcome = match (self.load.mode, &mut self.connection) {
                (Mode::PerCall, _) | (_, None) => match C::open_once(self.address).await {
                    Ok(mut connection) => called(&mut connection, self.load.call, &self.payload).await,
                    Err(error) => Err(error),
                },
                (_, Some(connection)) => called(connection, self.load.call, &self.payload).await,
            };
            if outcome.is_err() {
                // A dead connection answers at once: the others must still have their turn.
                tokio::task::yield_now().await;
            }
            from = self.tally.record(from, outcome);
        }
    }
}

async fn called<C: Connection>(connection: &mut C, call: Call, payload: &Bytes) -> Result<(), String> {
    match call {
        Call::Echo => connection.echo(payload).await,
        Call::Message => connection.message().await,
    }
}

/// When a caller, or a stream, sends nothing more.
pub(crate) struct Limit {
    begin: Instant,
    end: Option<Instant>,
    left: u64,
}

impl Limit {
    fn of(load: &Load, number: usize, begin: Instant) -> Self {
        let callers = load.callers as u64;
        match load.until {
            Until::Requests(all) => {
                Self { begin, end: None, left: all / callers + u64::from((number as u64) < all % callers) }
            }
            Until::After(_) => Self::of_all(load, begin),
        }
    }

    pub(crate) fn of_all(load: &Load, begin: Instant) -> Self {
        match load.until {
            Until::After(time) => Self { begin, end: Some(begin + time), left: u64::MAX },
            Until::Requests(all) => Self { begin, end: None, left: all },
        }
    }

    /// Returns whether another call may begin at `now`; counts it.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        if now < self.begin {
            return true;
        }
        let allowed = self.left > 0 && self.end.is_none_or(|end| now < end);
        self.left = self.left.saturating_sub(1);
        allowed
    }
}
