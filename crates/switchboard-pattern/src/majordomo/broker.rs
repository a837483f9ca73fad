//! The broker: a ROUTER socket, and a task that passes its messages through [`State`].

mod options;
mod queue;
mod state;
mod stats;

pub use options::BrokerOptions;
pub use stats::{BrokerStats, ServiceStats};

use crate::{
    route::{self, GONE, Sent},
    stall::Stall,
    task::Task,
};
use bytes::Bytes;
use state::{Sink, State};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::{Result, clock};
use switchboard_socket::{Endpoint, Message, Router, SocketOptions};
use tokio::time::{MissedTickBehavior, interval};

/// Messages that are handled before other tasks run.
const BATCH: usize = 256;

/// Bounds of the pause between two looks at the clock.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(250);

/// A broker of Majordomo. It ends when it is dropped; [`close`](Self::close) informs its peers.
#[derive(Debug)]
pub struct Broker {
    endpoint: Endpoint,
    router: Router,
    state: Arc<Mutex<State>>,
    task: Task,
}

/// Builder of a [`Broker`].
#[derive(Clone, Debug)]
pub struct BrokerBuilder {
    options: BrokerOptions,
    socket: SocketOptions,
}

impl Broker {
    /// Starts a broker with default options at an endpoint, see [`BrokerBuilder::bind`].
    ///
    /// # Errors
    /// Returns the errors of [`BrokerBuilder::bind`].
    pub async fn bind(endpoint: &str) -> Result<Broker> {
        Broker::builder().bind(endpoint).await
    }

    /// Returns a builder with default options.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder { options: BrokerOptions::default(), socket: route::listener_options() }
    }

    /// Returns the first endpoint, with the port that the system chose.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Binds a further endpoint, for example one for workers alone or one of `ipc`.
    ///
    /// # Errors
    /// Returns the errors of [`Router::bind_to`](switchboard_socket::Router::bind_to).
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        Ok(self.router.bind_to(endpoint).await?)
    }

    /// Returns the counters since the start, and the workers and queues now. Cost: one lock that the broker takes for
    /// each batch of messages, and a list of the services.
    pub fn stats(&self) -> BrokerStats {
        lock(&self.state).stats()
    }

    /// Disconnects the workers, refuses the waiting requests and closes the socket. Waits until unsent messages are
    /// written, at most for `timeouts.linger`. The broker ends also if the future is dropped.
    pub async fn close(self) {
        drop(self.task);
        lock(&self.state).close(&mut Peers(&self.router));
        self.router.close().await;
    }
}

impl BrokerBuilder {
    /// Changes the limits and times.
    ///
    /// ```
    /// use switchboard_pattern::majordomo::Broker;
    ///
    /// let builder = Broker::builder().options(|options| options.queue_requests_max = 50);
    /// ```
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut BrokerOptions)) -> BrokerBuilder {
        change(&mut self.options);
        self
    }

    /// Changes the options of the socket, such as its security. The broker sets `routing.mandatory` and
    /// `notices.disconnect` itself.
    #[must_use]
    pub fn socket_options(mut self, change: impl FnOnce(&mut SocketOptions)) -> BrokerBuilder {
        change(&mut self.socket);
        self
    }

    /// Binds an endpoint, such as `tcp://0.0.0.0:5555`, and starts the broker on the runtime of this thread.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for options that are not valid, and the errors of
    /// [`Router::bind_to`](switchboard_socket::Router::bind_to).
    pub async fn bind(mut self, endpoint: &str) -> Result<Broker> {
        self.options.check()?;
        self.socket.routing.mandatory = true;
        route::remove_time_limits(&mut self.socket);
        self.socket.notices.disconnect = Some(Bytes::from_static(GONE));
        let router = Router::with_options(self.socket)?;
        let endpoint = router.bind_to(endpoint).await?;
        let tick = (self.options.heartbeat_interval / 4).clamp(TICK_MIN, TICK_MAX);
        let stall = Stall::new(self.options.heartbeat_interval.max(tick * 2));
        let state = Arc::new(Mutex::new(State::new(self.options)));
        let task = Task::spawn(run(router.clone(), state.clone(), tick, stall));
        Ok(Broker { endpoint, router, state, task })
    }
}

/// Handles messages until the socket is closed.
async fn run(router: Router, state: Arc<Mutex<State>>, tick: Duration, mut stall: Stall) {
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = router.recv() => message,
            _ = ticks.tick() => {
                let (mut state, now) = (lock(&state), clock::now());
                if stall.check(now) {
                    state.forgive(now);
                }
                state.tick(now, &mut Peers(&router));
                continue;
            }
        };
        let Ok(message) = message else { return };
        {
            let (mut state, now, mut peers) = (lock(&state), clock::now(), Peers(&router));
            state.handle(now, message, &mut peers);
            for _ in 0..BATCH {
                match router.try_recv() {
                    Ok(Some(message)) => state.handle(now, message, &mut peers),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
        // The tasks that write the messages may be on this thread.
        tokio::task::yield_now().await;
    }
}

struct Peers<'a>(&'a Router);

impl Sink for Peers<'_> {
    fn send(&mut self, message: Message) -> Sent {
        route::pass(self.0, message)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
