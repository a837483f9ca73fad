//! The state of a queue: workers and waiting requests, without sockets and clocks.

use super::{QueueOptions, QueueStats};
use crate::route::{GONE, Sent};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};
use switchboard_core::clock;
use switchboard_socket::Message;

const READY: &[u8] = &[1];
const READY_TEXT: &[u8] = b"READY";
const HEARTBEAT: &[u8] = &[2];

/// Memory of a request without its frames, and of a frame without its bytes, as the limits count them.
const REQUEST_BYTES: usize = 128;
const FRAME_BYTES: usize = 64;

/// Passes messages to peers, without waiting.
pub(super) trait Sink {
    /// Passes a message to the client that its first frame names.
    fn to_client(&mut self, message: Message) -> Sent;

    /// Passes a message to the worker that its first frame names.
    fn to_worker(&mut self, message: Message) -> Sent;
}

#[derive(Debug)]
pub(super) struct State {
    options: QueueOptions,
    /// By routing id.
    workers: HashMap<Bytes, Worker>,
    /// Workers without a request; the one that waits for the longest time is the first.
    idle: VecDeque<Bytes>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    stats: QueueStats,
}

#[derive(Debug)]
struct Worker {
    /// A Simple Pirate worker: it sends no heartbeats.
    is_simple: bool,
    /// Client of the request that the worker has.
    client: Option<Bytes>,
    seen: Instant,
    next_heartbeat: Instant,
}

/// A request with its addresses.
#[derive(Debug)]
struct Waiting {
    frames: Vec<Bytes>,
    expires: Instant,
}

impl State {
    pub(super) fn new(options: QueueOptions) -> State {
        State {
            options,
            workers: HashMap::new(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            stats: QueueStats::default(),
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        QueueStats {
            idle: self.idle.len(),
            waiting: self.waiting.len(),
            waiting_bytes: self.waiting_bytes,
            workers: self.workers.len(),
            ..self.stats.clone()
        }
    }

    /// Handles a message of a client, whose routing id is its first frame.
    pub(super) fn client_message(&mut self, now: Instant, message: Message, sink: &mut impl Sink) {
        let frames = message.into_frames();
        match &*frames {
            [client, gone] if &**gone == GONE => {
                let before = self.waiting.len();
                self.waiting.retain(|waiting| waiting.frames.first() != Some(client));
                self.stats.orphaned += (before - self.waiting.len()) as u64;
                self.waiting_bytes = self.waiting.iter().map(|waiting| bytes(&waiting.frames)).sum();
                return;
            }
            // Addresses, an empty frame and a body, as REQ sends it.
            [_, rest @ ..] if rest.iter().rev().skip(1).any(Bytes::is_empty) => {}
            _ => {
                self.stats.invalid += 1;
                return;
            }
        }
        self.stats.requests += 1;
        let Some(frames) = self.assign(now, frames, sink) else { return };
        let bytes = bytes(&frames);
        if self.waiting.len() >= self.options.queue_requests_max
            || self.waiting_bytes.saturating_add(bytes) > self.options.queue_bytes_max
        {
            self.stats.refused += 1;
            return;
        }
        self.waiting_bytes = self.waiting_bytes.saturating_add(bytes);
        // Copies, because the frames are parts of a larger buffer.
        let frames = frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect();
        self.waiting.push_back(Waiting { frames, expires: clock::after(now, self.options.request_wait_max) });
    }

    /// Handles a message of a worker, whose routing id is its first frame.
    pub(super) fn worker_message(&mut self, now: Instant, message: Message, sink: &mut impl Sink) {
        let mut frames = message.into_frames();
        if frames.len() < 2 {
            self.stats.invalid += 1;
            return;
        }
        let route = frames.remove(0);
        if matches!(&*frames, [gone] if &**gone == GONE) {
            self.remove(&route);
            return;
        }
        let is_simple = frames[0].is_empty();
        if is_simple {
            frames.remove(0);
        }
        match &*frames {
            [command] if &**command == READY || is_simple && &**command == READY_TEXT => {
                // A worker that begins a conversation has lost its request.
                self.remove(&route);
                self.register(now, route.clone(), is_simple);
            }
            [command] if !is_simple && &**command == HEARTBEAT => match self.workers.get_mut(&route) {
                Some(worker) => worker.seen = now,
                // The queue was restarted, or has removed the worker, which is well again.
                None => self.register(now, route.clone(), false),
            },
            [client, rest @ ..] if rest.iter().rev().skip(1).any(Bytes::is_empty) => {
                let client = client.clone();
                if !self.reply(now, &route, &client, frames, sink) {
                    self.stats.replies_dropped += 1;
                    self.remove(&route);
                    self.register(now, route.clone(), is_simple);
                }
            }
            _ => {
                self.stats.invalid += 1;
                self.remove(&route);
                return;
            }
        }
        self.dispatch(now, sink);
    }

    /// Passes a reply on. Returns false if the worker has no request of the client.
    fn reply(
        &mut self,
        now: Instant,
        route: &Bytes,
        client: &Bytes,
        frames: Vec<Bytes>,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(worker) = self.workers.get_mut(route) else { return false };
        if worker.client.take_if(|known| known == client).is_none() {
            return false;
        }
        worker.seen = now;
        self.idle.push_back(route.clone());
        match sink.to_client(Message::from(frames)) {
            Sent::Passed => self.stats.replies += 1,
            Sent::Full | Sent::Gone => self.stats.replies_dropped += 1,
        }
        true
    }

    fn register(&mut self, now: Instant, route: Bytes, is_simple: bool) {
        if self.workers.len() >= self.options.workers_max {
            self.stats.refused_workers += 1;
            return;
        }
        let next_heartbeat = clock::after(now, self.options.heartbeat_interval);
        self.workers.insert(route.clone(), Worker { is_simple, client: None, seen: now, next_heartbeat });
        self.idle.push_back(route);
    }

    fn remove(&mut self, route: &Bytes) {
        let Some(worker) = self.workers.remove(route) else { return };
        self.idle.retain(|idle| idle != route);
        self.stats.requests_lost += u64::from(worker.client.is_some());
    }

    fn dispatch(&mut self, now: Instant, sink: &mut impl Sink) {
        while !self.idle.is_empty() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes(&waiting.frames));
            if now >= waiting.expires {
                self.stats.requests_expired += 1;
            } else if let Some(frames) = self.assign(now, waiting.frames, sink) {
                self.waiting_bytes = self.waiting_bytes.saturating_add(bytes(&frames));
                self.waiting.push_front(Waiting { frames, ..waiting });
                return;
            }
        }
    }

    /// Passes a request to an idle worker. Returns it if there is none.
    fn assign(&mut self, now: Instant, frames: Vec<Bytes>, sink: &mut impl Sink) -> Option<Vec<Bytes>> {
        loop {
            let Some(route) = self.idle.pop_front() else { return Some(frames) };
            let Some(worker) = self.workers.get_mut(&route) else { continue };
            let mut request = Vec::with_capacity(frames.len().saturating_add(2));
            request.push(route.clone());
            if worker.is_simple {
                request.push(Bytes::new());
            }
            request.extend(frames.iter().cloned());
            if sink.to_worker(Message::from(request)) == Sent::Passed {
                worker.client = frames.into_iter().next();
                worker.seen = now;
                worker.next_heartbeat = clock::after(now, self.options.heartbeat_interval);
                return None;
            }
            self.remove(&route);
        }
    }

    /// Restarts the time of all workers after a pause of this process, in which nothing read their heartbeats.
    pub(super) fn forgive(&mut self, now: Instant) {
        self.workers.values_mut().for_each(|worker| worker.seen = now);
    }

    /// Sends heartbeats, and removes workers that are silent and requests that have waited for too long.
    pub(super) fn tick(&mut self, now: Instant, sink: &mut impl Sink) {
        let idle = self.options.heartbeat_interval.saturating_mul(self.options.liveness);
        let busy = self.options.busy_expiry.max(idle);
        let (mut silent, mut gone) = (Vec::new(), Vec::new());
        for (route, worker) in &mut self.workers {
            let expiry = match (worker.is_simple, &worker.client) {
                (_, Some(_)) => busy,
                (false, None) => idle,
                (true, None) => continue,
            };
            if now.saturating_duration_since(worker.seen) >= expiry {
                silent.push(route.clone());
            } else if now >= worker.next_heartbeat && !worker.is_simple {
                worker.next_heartbeat = clock::after(now, self.options.heartbeat_interval);
                let heartbeat = Message::from([route.clone(), Bytes::from_static(HEARTBEAT)]);
                if sink.to_worker(heartbeat) != Sent::Passed {
                    gone.push(route.clone());
                }
            }
        }
        self.stats.workers_expired += silent.len() as u64;
        for route in silent.iter().chain(&gone) {
            self.remove(route);
        }
        // All wait for the same time, so the oldest are the first.
        while self.waiting.front().is_some_and(|waiting| now >= waiting.expires) {
            let Some(waiting) = self.waiting.pop_front() else { return };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes(&waiting.frames));
            self.stats.requests_expired += 1;
        }
    }
}

/// Returns the memory of a waiting request in bytes, as the limits count it.
fn bytes(frames: &[Bytes]) -> usize {
    let frames = frames.iter().map(|frame| frame.len().saturating_add(FRAME_BYTES));
    frames.fold(REQUEST_BYTES, usize::saturating_add)
}

#[cfg(test)]
mod tests;
