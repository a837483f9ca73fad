//! A node of the pair: sends its state to the peer, and applies the states of the peer and the requests of clients.

use super::{Conflict, Event, Outcome, State};
use crate::{Error, ErrorKind, Result, route, task::Task};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::{Endpoint, Pub, SocketOptions, Sub, options::QueueFullPolicy};
use tokio::{sync::watch, time::MissedTickBehavior};

/// A node of a pair. Dropping it ends the node.
///
/// ```
/// use std::time::Duration;
/// use switchboard_pattern::binary_star::{BinaryStar, State};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backup = BinaryStar::backup().bind("tcp://127.0.0.1:0").start().await?;
/// let primary = BinaryStar::primary()
///     .bind("tcp://127.0.0.1:0")
///     .peer(&backup.endpoints()[0].to_string())
///     .heartbeat(Duration::from_millis(10))
///     .start()
///     .await?;
/// backup.connect(&primary.endpoints()[0].to_string()).await?;
///
/// primary.until(State::Active).await?;
/// primary.admit()?; // before each request of a client
/// assert!(backup.admit().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BinaryStar {
    shared: Arc<Shared>,
    states: Pub,
    peer: Sub,
    _task: Task,
}

#[derive(Debug)]
struct Shared {
    machine: Mutex<Machine>,
    limits: Limits,
    /// The state, or the conflict that has ended the node.
    outcome: watch::Sender<Result<State, Conflict>>,
}

#[derive(Debug)]
struct Limits {
    failover_after: Duration,
    /// Time without a turn of the task after which it has paused; at least two heartbeats.
    stall_after: Duration,
}

#[derive(Debug)]
struct Machine {
    state: State,
    conflict: Option<Conflict>,
    /// Time from which the peer counts as silent.
    silent_from: Instant,
    /// Time of the last turn of the task, which reads the states of the peer.
    last_turn: Instant,
    stats: Stats,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// States that were sent to the peer.
    pub sent: u64,
    /// States of the peer that arrived.
    pub received: u64,
    /// Messages at the socket for states that are no state.
    pub invalid: u64,
    /// Changes of the own state.
    pub transitions: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl BinaryStar {
    /// Returns the settings of the primary node, which becomes active first.
    pub fn primary() -> BinaryStarBuilder {
        BinaryStarBuilder::new(State::Primary)
    }

    /// Returns the settings of the backup node.
    pub fn backup() -> BinaryStarBuilder {
        BinaryStarBuilder::new(State::Backup)
    }

    /// Returns the endpoints at which the peer receives the state of this node.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.states.endpoints()
    }

    /// Connects to another endpoint of the peer.
    ///
    /// # Errors
    /// Returns the errors of [`BinaryStarBuilder::start`] for endpoints.
    pub async fn connect(&self, endpoint: &str) -> Result<()> {
        Ok(self.peer.connect_to(endpoint).await?)
    }

    /// Returns the state. After a conflict the node has ended: it is not active then, and an active one is returned as
    /// passive.
    pub fn state(&self) -> State {
        let machine = self.shared.lock();
        match machine.conflict {
            Some(_) if machine.state == State::Active => State::Passive,
            _ => machine.state,
        }
    }

    /// Decides on a request of a client: call it before each one. The first request after the peer has been silent for
    /// the failover limit makes a passive node active.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotActive`] if the peer serves clients, or is to be waited for: the client tries the other
    /// node. Returns [`ErrorKind::Closed`] after a conflict, and names it.
    pub fn admit(&self) -> Result<()> {
        let mut machine = self.shared.lock();
        let is_peer_silent = machine.is_peer_silent(clock::now(), &self.shared.limits);
        let outcome = self.shared.apply(&mut machine, Event::Request { is_peer_silent });
        match outcome {
            Ok(Outcome::Accepted) => {
                machine.stats.admitted += 1;
                Ok(())
            }
            Ok(Outcome::Refused) => {
                machine.stats.refused += 1;
                let text = format!("this node is {}; send the request to the other node", machine.state);
                Err(Error::new(ErrorKind::NotActive, text))
            }
            Err(conflict) => {
                machine.stats.refused += 1;
                Err(Error::new(ErrorKind::Closed, conflict.to_string()))
            }
        }
    }

    /// Waits until the state is not `known`, and returns it. Cancel safe.
    ///
    /// # Errors
    /// Returns the conflict that has ended the node.
    pub async fn changed(&self, known: State) -> Result<State, Conflict> {
        self.wait_for(|state| state != known).await
    }

    /// Waits until the node is in a state. Cancel safe.
    ///
    /// # Errors
    /// Returns the conflict that has ended the node.
    pub async fn until(&self, state: State) -> Result<(), Conflict> {
        self.wait_for(|current| current == state).await.map(drop)
    }

    async fn wait_for(&self, condition: impl Fn(State) -> bool) -> Result<State, Conflict> {
        let mut outcome = self.shared.outcome.subscribe();
        let is_met = |outcome: &Result<State, Conflict>| outcome.map_or(true, &condition);
        match outcome.wait_for(is_met).await {
            Ok(outcome) => *outcome,
            // The sender is in `shared`, which this node holds.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats
    }
}

impl Machine {
    /// Returns true if the peer is silent, as a turn of the task after the limit has shown.
    fn is_peer_silent(&mut self, now: Instant, limits: &Limits) -> bool {
        self.notice_stall(now, limits);
        now >= self.silent_from && self.last_turn >= self.silent_from
    }

    /// Notes a turn of the task.
    fn turn(&mut self, now: Instant, limits: &Limits) {
        self.notice_stall(now, limits);
        self.last_turn = now;
    }

    /// Restarts the silence of the peer after a pause of the task, in which nothing read the states of the peer: this
    /// process was stopped, or its machine was suspended or overloaded.
    fn notice_stall(&mut self, now: Instant, limits: &Limits) {
        if now.saturating_duration_since(self.last_turn) >= limits.stall_after {
            self.silent_from = clock::after(now, limits.failover_after);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, machine: &mut Machine, event: Event) -> Result<Outcome, Conflict> {
        if let Some(conflict) = machine.conflict {
            return Err(conflict);
        }
        match machine.state.apply(event) {
            Ok((state, outcome)) => {
                if state != machine.state {
                    tracing::info!(from = %machine.state, to = %state, "a node of a pair changes its state");
                    machine.state = state;
                    machine.stats.transitions += 1;
                    let _ = self.outcome.send_replace(Ok(state));
                }
                Ok(outcome)
            }
            Err(conflict) => {
                tracing::error!(%conflict, "a node of a pair has ended");
                machine.conflict = Some(conflict);
                let _ = self.outcome.send_replace(Err(conflict));
                Err(conflict)
            }
        }
    }

    /// Applies a message of the peer.
    fn receive(&self, frame: &[u8]) -> Result<(), Conflict> {
        let mut machine = self.lock();
        let Some(state) = State::from_frame(frame) else {
            machine.stats.invalid += 1;
            return Ok(());
        };
        machine.stats.received += 1;
        machine.silent_from = clock::after(clock::now(), self.limits.failover_after);
        self.apply(&mut machine, Event::Peer(state)).map(drop)
    }

    fn frame(&self) -> String {
        let mut machine = self.lock();
        machine.stats.sent += 1;
        machine.state.number().to_string()
    }
}

/// Settings of a [`BinaryStar`].
#[derive(Debug)]
#[must_use = "a node does not run before `start`"]
pub struct BinaryStarBuilder {
    role: State,
    binds: Vec<String>,
    peers: Vec<String>,
    heartbeat: Duration,
    failover_after: Option<Duration>,
    options: SocketOptions,
}

impl BinaryStarBuilder {
    fn new(role: State) -> BinaryStarBuilder {
        BinaryStarBuilder {
            role,
            binds: Vec::new(),
            peers: Vec::new(),
            heartbeat: Duration::from_secs(1),
            failover_after: None,
            options: SocketOptions::default(),
        }
    }

    /// Binds another endpoint, at which the peer receives the state of this node.
    pub fn bind(mut self, endpoint: &str) -> Self {
        self.binds.push(endpoint.to_owned());
        self
    }

    /// Connects to another endpoint of the peer. Both nodes of a pair need one.
    pub fn peer(mut self, endpoint: &str) -> Self {
        self.peers.push(endpoint.to_owned());
        self
    }

    /// Sets the pause between two states that are sent to the peer; default 1 s, at least 1 ms. Set the same on both
    /// nodes.
    pub fn heartbeat(mut self, pause: Duration) -> Self {
        self.heartbeat = pause.max(Duration::from_millis(1));
        self
    }

    /// Sets the time without a state of the peer after which the first request makes this node active, up to one
    /// heartbeat later; default two heartbeats. After a pause of this process the time begins again. A shorter limit
    /// than two heartbeats makes nodes active that have a live peer.
    pub fn failover_after(mut self, limit: Duration) -> Self {
        self.failover_after = Some(limit);
        self
    }

    /// Sets the options of both sockets: limits, security. The queue for states of the peer keeps the newest only.
    pub fn options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        self
    }

    /// Starts the node on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] without an endpoint to bind, and for invalid endpoints and options, and
    /// [`ErrorKind::Socket`] if an endpoint cannot be bound.
    pub async fn start(self) -> Result<BinaryStar> {
        if self.binds.is_empty() {
            let text = "the node has no endpoint for its peer; call bind";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let mut options = self.options.clone();
        route::remove_time_limits(&mut options);
        // A peer that does not read must not stop the node.
        options.queues.when_full = QueueFullPolicy::DropOldest;
        let states = Pub::with_options(options)?;
        for endpoint in &self.binds {
            states.bind_to(endpoint).await?;
        }
        let mut options = self.options;
        // After a pause of this process, old states of the peer must not be mistaken for new ones.
        options.queues.conflate = true;
        route::remove_time_limits(&mut options);
        let peer = Sub::with_options(options)?;
        peer.subscribe("")?;
        for endpoint in &self.peers {
            peer.connect_to(endpoint).await?;
        }
        let failover_after = self.failover_after.unwrap_or(self.heartbeat.saturating_mul(2));
        let machine = Machine {
            state: self.role,
            conflict: None,
            silent_from: clock::after(clock::now(), failover_after),
            last_turn: clock::now(),
            stats: Stats::default(),
        };
        let outcome = watch::Sender::new(Ok(self.role));
        let limits =
            Limits { failover_after, stall_after: failover_after.max(self.heartbeat.saturating_mul(2)) };
        let shared = Arc::new(Shared { machine: Mutex::new(machine), limits, outcome });
        let task = Task::spawn(run(shared.clone(), states.clone(), peer.clone(), self.heartbeat));
        Ok(BinaryStar { shared, states, peer, _task: task })
    }
}

async fn run(shared: Arc<Shared>, states: Pub, peer: Sub, heartbeat: Duration) {
    let mut ticks = tokio::time::interval(heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut outcome = shared.outcome.subscribe();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // The peer learns of a new state at once.
            _ = outcome.changed() => {}
            message = peer.recv() => match message {
                Ok(message) => {
                    shared.lock().turn(clock::now(), &shared.limits);
                    // A conflict ends the loop below.
                    let _ = shared.receive(message.body());
                    if outcome.has_changed().is_ok_and(|has_changed| !has_changed) {
                        continue;
                    }
                    outcome.mark_unchanged();
                }
                Err(_) => return,
            },
        }
        shared.lock().turn(clock::now(), &shared.limits);
        // Sent after a conflict too, once: the peer then notices it as well.
        if states.send(shared.frame()).await.is_err() || shared.lock().conflict.is_some() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_silent_after_a_turn_of_the_task_and_not_after_a_pause() {
        let start = clock::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let limits = Limits { failover_after: Duration::from_secs(2), stall_after: Duration::from_secs(2) };
        let stats = Stats::default();
        let mut machine =
            Machine { state: State::Passive, conflict: None, silent_from: at(20), last_turn: at(9), stats };
        assert!(!machine.is_peer_silent(at(21), &limits), "no turn of the task since the limit");
        machine.turn(at(22), &limits);
        assert!(machine.is_peer_silent(at(23), &limits));
        assert!(!machine.is_peer_silent(at(60), &limits), "a pause of the task");
        for tenths in [60, 70, 79] {
            machine.turn(at(tenths), &limits);
            assert!(!machine.is_peer_silent(at(tenths), &limits), "the time begins again");
        }
        machine.turn(at(80), &limits);
        assert!(machine.is_peer_silent(at(80), &limits));
    }
}
