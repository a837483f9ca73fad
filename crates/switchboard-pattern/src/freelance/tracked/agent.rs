//! The task of a client: it tracks the servers, and sends requests to those that are alive.

use super::{Counts, TrackedBuilder};
use crate::route::{self, GONE, Sent};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::{Message, Router};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

/// Bounds of the pause between two looks at the clock.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(100);

/// A request of the program.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) body: Vec<Bytes>,
    pub(super) reply: oneshot::Sender<Message>,
}

pub(super) struct Agent {
    router: Router,
    options: Arc<TrackedBuilder>,
    counts: Arc<Counts>,
    servers: Vec<Server>,
    /// Outstanding requests, by the number in their control frame.
    pending: HashMap<u64, Pending>,
    number: u64,
}

struct Server {
    endpoint: Bytes,
    is_alive: bool,
    seen: Instant,
    next_ping: Instant,
}

struct Pending {
    body: Vec<Bytes>,
    reply: oneshot::Sender<Message>,
    /// Indices of the servers that the request was sent to; the last one has it now.
    sent: Vec<usize>,
    attempt_ends: Instant,
}

impl Agent {
    pub(super) fn new(router: Router, options: Arc<TrackedBuilder>, counts: Arc<Counts>) -> Agent {
        let now = clock::now();
        let servers = options.servers.iter().map(|endpoint| Server {
            endpoint: endpoint.clone(),
            is_alive: false,
            seen: now,
            next_ping: now,
        });
        let servers = servers.collect();
        Agent { router, options, counts, servers, pending: HashMap::new(), number: clock::random() }
    }

    /// Runs until the client is dropped or the socket is closed.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let shortest = self.options.ping_interval.min(self.options.attempt_timeout).min(self.options.expiry);
        let mut ticks = interval((shortest / 4).clamp(TICK_MIN, TICK_MAX));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = self.router.recv() => {
                    let Ok(message) = message else { return };
                    self.receive(message);
                }
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    self.start(command);
                }
                _ = ticks.tick() => self.tick(clock::now()),
            }
            tokio::task::consume_budget().await;
        }
    }

    fn start(&mut self, command: Command) {
        self.number = self.number.wrapping_add(1);
        let Command { body, reply } = command;
        let pending = Pending { body, reply, sent: Vec::new(), attempt_ends: clock::now() };
        self.pending.insert(self.number, pending);
        self.send(self.number);
    }

    /// Sends a request to the first server that is alive and does not know it. Without one it waits.
    fn send(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        for (index, server) in self.servers.iter_mut().enumerate() {
            if !server.is_alive || pending.sent.contains(&index) {
                continue;
            }
            let head = [server.endpoint.clone(), Bytes::copy_from_slice(&number.to_be_bytes())];
            let request = Message::from([&head, &*pending.body].concat());
            if route::pass(&self.router, request) == Sent::Passed {
                self.counts.retries.fetch_add(u64::from(!pending.sent.is_empty()), Relaxed);
                pending.sent.push(index);
                pending.attempt_ends = clock::after(clock::now(), self.options.attempt_timeout);
                return;
            }
        }
    }

    fn receive(&mut self, message: Message) {
        let mut frames = message.into_frames();
        let index =
            frames.first().and_then(|route| self.servers.iter().position(|known| known.endpoint == *route));
        let Some(index) = index else {
            self.counts.replies_dropped.fetch_add(1, Relaxed);
            return;
        };
        if matches!(&*frames, [_, gone] if &**gone == GONE) {
            self.set_alive(index, false);
            self.servers[index].next_ping = clock::now();
            return self.send_again(index);
        }
        self.servers[index].seen = clock::now();
        if !self.servers[index].is_alive {
            self.set_alive(index, true);
            self.send_waiting();
        }
        if matches!(&*frames, [_, pong] if &**pong == b"PONG") {
            return;
        }
        let number = frames.get(1).and_then(|control| <[u8; 8]>::try_from(&**control).ok());
        let pending = number.and_then(|number| self.pending.remove(&u64::from_be_bytes(number)));
        frames.drain(..frames.len().min(2));
        let is_taken = pending.is_some_and(|pending| pending.reply.send(Message::from(frames)).is_ok());
        let counter = if is_taken { &self.counts.replies } else { &self.counts.replies_dropped };
        counter.fetch_add(1, Relaxed);
    }

    fn set_alive(&mut self, index: usize, is_alive: bool) {
        self.servers[index].is_alive = is_alive;
        self.counts.alive.store(self.servers.iter().filter(|server| server.is_alive).count(), Relaxed);
    }

    /// Sends the requests that a failed server had to others. It may get them again when it is back.
    fn send_again(&mut self, index: usize) {
        let mut failed = Vec::new();
        for (number, pending) in &mut self.pending {
            // Another server has a request that was sent further after `attempt_timeout`.
            if pending.sent.last() == Some(&index) {
                failed.push(*number);
            }
            pending.sent.retain(|sent| *sent != index);
        }
        for number in failed {
            self.send(number);
        }
    }

    /// Sends the requests that wait for a server.
    fn send_waiting(&mut self) {
        let waiting = self.pending.iter().filter(|(_, pending)| pending.sent.is_empty());
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            self.send(number);
        }
    }

    fn tick(&mut self, now: Instant) {
        // Requests whose time is over, or that the program has dropped.
        self.pending.retain(|_, pending| !pending.reply.is_closed());
        for index in 0..self.servers.len() {
            let server = &mut self.servers[index];
            if server.is_alive && now.saturating_duration_since(server.seen) >= self.options.expiry {
                self.set_alive(index, false);
                self.send_again(index);
            }
            let server = &mut self.servers[index];
            if now >= server.next_ping {
                let ping = Message::from([server.endpoint.clone(), Bytes::from_static(b"PING")]);
                // One that is not connected gets a PING as soon as it is; a frozen one does not get more of them.
                if route::pass(&self.router, ping) != Sent::Gone {
                    server.next_ping = clock::after(now, self.options.ping_interval);
                }
            }
        }
        let late = self.pending.iter().filter(|(_, pending)| now >= pending.attempt_ends);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.send(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freelance::TrackedClient;
    use switchboard_socket::SocketOptions;

    /// An agent with the servers "a", "b" and "c", which are connected and alive.
    async fn agent() -> (Agent, Vec<Router>) {
        let mut options = SocketOptions::default();
        options.routing.mandatory = true;
        let router = Router::with_options(options).unwrap();
        let mut servers = Vec::new();
        for name in ["a", "b", "c"] {
            let mut options = SocketOptions::default();
            options.routing.routing_id = name.into();
            let server = Router::with_options(options).unwrap();
            let endpoint = server.bind_to("tcp://127.0.0.1:0").await.unwrap();
            router.connect_to(&endpoint.to_string()).await.unwrap();
            while route::pass(&router, Message::from([name, "first"].map(Bytes::from))) != Sent::Passed {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            assert_eq!(server.recv().await.unwrap().body(), b"first");
            servers.push(server);
        }
        let builder = TrackedClient::builder(&["a", "b", "c"]).ping_interval(Duration::from_secs(2));
        let mut agent = Agent::new(router, Arc::new(builder), Arc::default());
        (0..3).for_each(|index| agent.set_alive(index, true));
        (agent, servers)
    }

    #[tokio::test]
    async fn the_end_of_a_server_moves_only_the_requests_that_it_has() {
        let (mut agent, _servers) = agent().await;
        let (reply, _receiver) = oneshot::channel();
        agent.start(Command { body: vec![Bytes::from_static(b"body")], reply });
        let number = agent.number;
        agent.send(number);
        assert_eq!(agent.pending[&number].sent, [0, 1], "sent further after attempt_timeout");
        let gone = |name: &'static str| Message::from([name.as_bytes(), GONE].map(Bytes::from_static));
        agent.receive(gone("a"));
        assert_eq!(agent.pending[&number].sent, [1], "the second server has it");
        agent.receive(gone("b"));
        assert_eq!(agent.pending[&number].sent, [2]);
    }

    #[tokio::test]
    async fn a_frozen_server_gets_one_ping_each_interval() {
        let (mut agent, servers) = agent().await;
        agent.set_alive(0, false);
        let start = clock::now();
        for tick in 0..50 {
            agent.tick(start + Duration::from_millis(100 * tick));
        }
        let last = Message::from(["a", "last"].map(Bytes::from));
        assert_eq!(route::pass(&agent.router, last), Sent::Passed);
        let mut pings = 0;
        while servers[0].recv().await.unwrap().body() == b"PING" {
            pings += 1;
        }
        assert_eq!(pings, 3, "at 0, 2 and 4 s");
    }
}
