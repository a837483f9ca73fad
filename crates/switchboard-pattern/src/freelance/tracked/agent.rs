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

    /// Sends the requests of a server that failed to others. It may get them again when it is back.
    fn send_again(&mut self, index: usize) {
        let mut failed = Vec::new();
        for (number, pending) in &mut self.pending {
            if pending.sent.contains(&index) {
                pending.sent.retain(|sent| *sent != index);
                failed.push(*number);
            }
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
            // One that is not alive gets a PING as soon as it is connected.
            if !server.is_alive || now >= server.next_ping {
                server.next_ping = clock::after(now, self.options.ping_interval);
                // A server that is not connected is not alive.
                let ping = Message::from([server.endpoint.clone(), Bytes::from_static(b"PING")]);
                let _ = route::pass(&self.router, ping);
            }
        }
        let late = self.pending.iter().filter(|(_, pending)| now >= pending.attempt_ends);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.send(number);
        }
    }
}
