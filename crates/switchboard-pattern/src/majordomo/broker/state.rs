//! The state of a broker: workers, services and queues, without sockets and clocks.

mod requests;
mod workers;

use super::{
    super::command::{self, ToBroker, Version},
    BrokerOptions, BrokerStats, ServiceStats,
    queue::{Job, Queue},
};
use crate::route::Sent;
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::Message;

/// Pause between searches for requests that have waited for too long, and for services without use.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// Passes messages to peers.
pub(super) trait Sink {
    /// Passes a message, without waiting, to the peer that its first frame names.
    fn send(&mut self, message: Message) -> Sent;
}

#[derive(Debug)]
pub(super) struct State {
    options: BrokerOptions,
    /// By routing id.
    workers: HashMap<Bytes, Worker>,
    /// By name.
    services: HashMap<Bytes, Service>,
    /// Number of waiting requests, by the routing id of their client.
    clients: HashMap<Bytes, u32>,
    /// Memory of all requests that are kept.
    kept_bytes: usize,
    next_search: Option<Instant>,
    /// Without services, which are counted when they are read.
    stats: BrokerStats,
}

#[derive(Debug)]
struct Worker {
    version: Version,
    service: Bytes,
    job: Option<Box<Job>>,
    /// Turn in the idle workers of the service, since the last reply.
    turn: u64,
    seen: Instant,
    next_heartbeat: Instant,
}

#[derive(Debug, Default)]
struct Service {
    /// Workers without a request, by their turn; the one that waits for the longest time is the first.
    idle: BTreeMap<u64, Bytes>,
    /// Last turn.
    turn: u64,
    queue: Queue,
    replies: u64,
    workers: usize,
}

impl State {
    pub(super) fn new(options: BrokerOptions) -> State {
        State {
            options,
            workers: HashMap::new(),
            services: HashMap::new(),
            clients: HashMap::new(),
            kept_bytes: 0,
            next_search: None,
            stats: BrokerStats::default(),
        }
    }

    /// Handles a message, whose first frame is the routing id of its peer.
    pub(super) fn handle(&mut self, now: Instant, message: Message, sink: &mut impl Sink) {
        let mut frames = message.into_frames();
        if frames.is_empty() {
            return;
        }
        let route = frames.remove(0);
        match command::read_to_broker(frames) {
            Ok(ToBroker::Request { version, service, extension, body }) => {
                self.request(now, (route, version), &service, extension, body, sink);
            }
            Ok(ToBroker::Ready { version, service }) => self.ready(now, route, version, service, sink),
            Ok(ToBroker::Reply { version, is_final, client, body }) => {
                if !self.reply(now, &route, is_final, &client, body, sink) {
                    self.stats.replies_dropped += 1;
                    self.unexpected(now, &route, version, sink);
                }
            }
            Ok(ToBroker::Heartbeat { version }) => match self.workers.get_mut(&route) {
                Some(worker) => worker.seen = now,
                None => self.unexpected(now, &route, version, sink),
            },
            Ok(ToBroker::Disconnect) => self.remove_worker(now, &route, false, sink),
            Ok(ToBroker::Gone) => {
                self.remove_worker(now, &route, false, sink);
                self.remove_client(&route);
            }
            Err(rule) => {
                self.stats.invalid += 1;
                tracing::debug!(
                    target: "switchboard::pattern", peer = %route.escape_ascii(), rule, "majordomo: invalid message"
                );
                self.remove_worker(now, &route, true, sink);
            }
        }
    }

    /// Sends heartbeats, and removes workers that are silent and requests that have waited for too long.
    pub(super) fn tick(&mut self, now: Instant, sink: &mut impl Sink) {
        let (idle, busy) = (self.options.idle_expiry(), self.options.busy_expiry);
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (route, worker) in &mut self.workers {
            let expiry = if worker.job.is_some() { busy.max(idle) } else { idle };
            if now.saturating_duration_since(worker.seen) >= expiry {
                silent.push(route.clone());
            } else if now >= worker.next_heartbeat {
                worker.next_heartbeat = clock::after(now, self.options.heartbeat_interval);
                if sink.send(command::worker_heartbeat(route.clone(), worker.version)) != Sent::Passed {
                    gone.push(route.clone());
                }
            }
        }
        self.stats.workers_expired += silent.len() as u64;
        for route in silent.iter().chain(&gone) {
            self.remove_worker(now, route, false, sink);
        }
        if self.next_search.is_none_or(|next| now >= next) {
            self.next_search = Some(clock::after(now, SEARCH_INTERVAL));
            self.expire_requests(now, sink);
            self.services.retain(|_, service| service.is_used());
        }
    }

    /// Restarts the time of all workers after a pause of this process, in which nothing read their heartbeats.
    pub(super) fn forgive(&mut self, now: Instant) {
        self.workers.values_mut().for_each(|worker| worker.seen = now);
    }

    /// Disconnects all workers and refuses all waiting requests.
    pub(super) fn close(&mut self, sink: &mut impl Sink) {
        let mut jobs = Vec::new();
        for (route, worker) in self.workers.drain() {
            sink.send(command::worker_disconnect(route, worker.version));
            jobs.extend(worker.job.map(|job| (worker.service, job)));
        }
        for (name, job) in jobs {
            self.fail(&name, &job, requests::LOST, sink);
        }
        for (name, mut service) in std::mem::take(&mut self.services) {
            while let Some(job) = service.queue.pop() {
                self.fail(&name, &job, requests::CLOSED, sink);
            }
        }
        (self.clients, self.kept_bytes) = (HashMap::new(), 0);
    }

    pub(super) fn stats(&self) -> BrokerStats {
        let services = self.services.iter().filter(|(_, service)| service.is_used());
        let services = services.map(|(name, service)| ServiceStats {
            name: String::from_utf8_lossy(name).into_owned(),
            idle: service.idle.len(),
            queued: service.queue.len(),
            replies: service.replies,
            workers: service.workers,
        });
        let mut services: Vec<_> = services.collect();
        services.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        BrokerStats {
            queued_bytes: self.kept_bytes,
            services,
            workers: self.workers.len(),
            ..self.stats.clone()
        }
    }

    /// Returns the service; creates it if the limit allows.
    fn service(&mut self, name: &Bytes) -> Option<&mut Service> {
        if !self.services.contains_key(name) {
            if self.services.len() >= self.options.services_max {
                self.services.retain(|_, service| service.is_used());
            }
            if self.services.len() >= self.options.services_max {
                return None;
            }
            // The name may be part of a larger buffer.
            self.services.insert(Bytes::copy_from_slice(name), Service::default());
        }
        self.services.get_mut(name)
    }
}

impl Service {
    /// Adds an idle worker; returns its turn.
    fn add_idle(&mut self, route: Bytes) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        self.idle.insert(self.turn, route);
        self.turn
    }

    fn is_used(&self) -> bool {
        self.workers > 0 || self.queue.len() > 0
    }
}

#[cfg(test)]
mod tests;
