//! Workers: registration, requests and replies, removal.

use super::{
    super::super::command::{self, Version},
    Job, Sent, Sink, State, Worker, requests,
};
use bytes::Bytes;
use std::time::Instant;
use switchboard_core::clock;
use switchboard_wire::Code;

impl State {
    pub(super) fn ready(
        &mut self,
        now: Instant,
        route: Bytes,
        version: Version,
        name: Bytes,
        sink: &mut impl Sink,
    ) {
        if self.workers.contains_key(&route) {
            return self.unexpected(now, &route, version, sink);
        }
        let is_reserved = name.starts_with(b"mmi.");
        let is_full = self.workers.len() >= self.options.workers_max;
        let turn = if is_reserved || is_full {
            None
        } else {
            self.service(&name).map(|service| {
                service.workers += 1;
                service.add_idle(route.clone())
            })
        };
        let Some(turn) = turn else {
            self.stats.refused_workers += 1;
            sink.send(command::worker_disconnect(route, version));
            return;
        };
        // Of the map, so that workers share the memory of the name.
        let service = self.services.get_key_value(&name).map_or(name, |(name, _)| name.clone());
        let worker = Worker {
            version,
            service: service.clone(),
            job: None,
            turn,
            seen: now,
            next_heartbeat: clock::after(now, self.options.heartbeat_interval),
        };
        self.workers.insert(route, worker);
        self.dispatch(now, &service, sink);
    }

    /// Passes a reply on. Returns false if the peer is no worker with a request of the client.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        route: &Bytes,
        is_final: bool,
        client: &Bytes,
        body: Vec<Bytes>,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(worker) = self.workers.get_mut(route) else { return false };
        let Some(mut job) = worker.job.take_if(|job| job.client == *client) else { return false };
        worker.seen = now;
        let name = worker.service.clone();
        let is_passed = self.pass(&name, &job, is_final, Code::Ok, body, sink);
        if is_final {
            self.stats.replies += u64::from(is_passed);
            self.release(&job);
            if let Some(service) = self.services.get_mut(&name) {
                service.replies += 1;
                let turn = service.add_idle(route.clone());
                if let Some(worker) = self.workers.get_mut(route) {
                    worker.turn = turn;
                }
            }
            self.dispatch(now, &name, sink);
        } else {
            // A client of MDP/0.1 never gets parts, and still gets the final reply.
            job.is_cut |= !is_passed && job.version != Version::V1;
            job.is_answered = true;
            if let Some(worker) = self.workers.get_mut(route) {
                worker.job = Some(job);
            }
        }
        true
    }

    /// Passes a request to an idle worker. Returns it if there is none.
    pub(super) fn assign(
        &mut self,
        now: Instant,
        name: &Bytes,
        mut job: Job,
        sink: &mut impl Sink,
    ) -> Option<Job> {
        loop {
            let Some((_, route)) = self.services.get_mut(name).and_then(|service| service.idle.pop_first())
            else {
                return Some(job);
            };
            let Some(worker) = self.workers.get_mut(&route) else { continue };
            let (client, body) = (job.client.clone(), job.body.clone());
            let request = command::worker_request(route.clone(), worker.version, client, body);
            if sink.send(request) == Sent::Passed {
                // Its time begins now: an idle worker sends heartbeats, and a busy one may not.
                worker.seen = now;
                worker.next_heartbeat = clock::after(now, self.options.heartbeat_interval);
                job.deliveries = job.deliveries.saturating_sub(1);
                self.keep(&mut job);
                if let Some(worker) = self.workers.get_mut(&route) {
                    worker.job = Some(Box::new(job));
                }
                return None;
            }
            self.remove_worker(now, &route, false, sink);
        }
    }

    /// Keeps the body of a request that may be delivered again and fits into the limit, and drops that of another one.
    fn keep(&mut self, job: &mut Job) {
        let bytes = job.bytes();
        if job.deliveries == 0 || self.kept_bytes.saturating_add(bytes) > self.options.queued_bytes_max {
            (job.body, job.deliveries) = (Vec::new(), 0);
        } else {
            job.detach();
            self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        }
    }

    /// Counts a request that leaves its worker.
    fn release(&mut self, job: &Job) {
        if job.deliveries > 0 {
            self.kept_bytes = self.kept_bytes.saturating_sub(job.bytes());
        }
    }

    /// Answers a command that the protocol does not allow now: the worker has to register again.
    pub(super) fn unexpected(&mut self, now: Instant, route: &Bytes, version: Version, sink: &mut impl Sink) {
        self.stats.unexpected += 1;
        sink.send(command::worker_disconnect(route.clone(), version));
        self.remove_worker(now, route, false, sink);
    }

    /// Removes a worker, if the peer is one. Its request is delivered again if that is allowed.
    pub(super) fn remove_worker(
        &mut self,
        now: Instant,
        route: &Bytes,
        is_disconnected: bool,
        sink: &mut impl Sink,
    ) {
        let Some(mut worker) = self.workers.remove(route) else { return };
        if is_disconnected {
            sink.send(command::worker_disconnect(route.clone(), worker.version));
        }
        let name = worker.service;
        if let Some(service) = self.services.get_mut(&name) {
            service.workers = service.workers.saturating_sub(1);
            if worker.job.is_none() {
                service.idle.remove(&worker.turn);
            }
        }
        tracing::debug!(
            target: "switchboard::pattern", service = %name.escape_ascii(), worker = %route.escape_ascii(),
            is_busy = worker.job.is_some(), "majordomo: worker removed"
        );
        let Some(job) = worker.job.take() else { return };
        self.release(&job);
        if job.deliveries > 0 && !job.is_answered {
            self.stats.redelivered += 1;
            self.requeue(now, &name, *job);
            self.dispatch(now, &name, sink);
        } else {
            self.stats.requests_lost += 1;
            self.fail(&name, &job, requests::LOST, sink);
        }
    }
}
