//! Requests of clients: their queues, their expiry, and the replies.

use super::{
    super::super::command::{self, Extension, Version},
    Job, Sent, Sink, State,
};
use bytes::Bytes;
use std::time::{Duration, Instant};
use switchboard_core::clock;
use switchboard_wire::Code;

/// A reason for which a request fails, for clients with the extension.
pub(super) type Failure = (Code, &'static str);

pub(super) const CLOSED: Failure = (Code::Unavailable, "the broker is closed; the request was not delivered");
const CLIENT_FULL: Failure =
    (Code::ResourceExhausted, "the client has too many waiting requests (client_requests_max)");
const EXPIRED: Failure =
    (Code::DeadlineExceeded, "no worker was free in time; the request was not delivered");
pub(super) const LOST: Failure =
    (Code::Unavailable, "the worker of the request is gone, and no further delivery is allowed");
const QUEUE_FULL: Failure =
    (Code::ResourceExhausted, "the queue of the service is full (queue_requests_max, queue_bytes_max)");
const ALL_FULL: Failure = (Code::ResourceExhausted, "the queues of the broker are full (queued_bytes_max)");
const SERVICES_FULL: Failure =
    (Code::ResourceExhausted, "the broker has too many services (services_max); none has the name");

impl State {
    pub(super) fn request(
        &mut self,
        now: Instant,
        (client, version): (Bytes, Version),
        service: &Bytes,
        extension: Option<Extension>,
        body: Vec<Bytes>,
        sink: &mut impl Sink,
    ) {
        self.stats.requests += 1;
        let wait_max = self.options.request_wait_max;
        let wait = extension.map(|extension| extension.wait_ms).filter(|ms| *ms > 0);
        let wait = wait.map_or(wait_max, |ms| Duration::from_millis(ms.into()).min(wait_max));
        let deliveries = match extension {
            Some(extension) => extension.deliveries_max.max(1),
            None => self.options.deliveries_default,
        };
        let job = Job {
            client,
            version,
            tag: extension.map(|extension| extension.tag),
            priority: extension.map_or(0, |extension| extension.priority),
            deliveries,
            wait,
            expires: clock::after(now, wait),
            body,
            is_cut: false,
            is_answered: false,
        };
        if service.starts_with(b"mmi.") {
            return self.manage(service, &job, sink);
        }
        let Some(found) = self.service(service) else {
            return self.refuse(service, &job, SERVICES_FULL, sink);
        };
        if found.queue.len() == 0 && !found.idle.is_empty() {
            return match self.assign(now, service, job, sink) {
                None => {}
                Some(job) => self.enqueue(service, job, sink),
            };
        }
        self.enqueue(service, job, sink);
    }

    /// Answers a service of the broker itself.
    fn manage(&mut self, service: &Bytes, job: &Job, sink: &mut impl Sink) {
        let code: &'static [u8] = match (&**service, &*job.body) {
            (b"mmi.service", [.., name]) => {
                let is_known = self.services.get(name).is_some_and(|service| service.workers > 0);
                if is_known { b"200" } else { b"404" }
            }
            _ => b"501",
        };
        self.pass(service, job, true, Code::Ok, vec![Bytes::from_static(code)], sink);
    }

    /// Adds a request to the queue of its service, or refuses it.
    fn enqueue(&mut self, name: &Bytes, mut job: Job, sink: &mut impl Sink) {
        let bytes = job.bytes();
        let Some(service) = self.services.get_mut(name) else { return };
        let waiting = self.clients.get(&job.client).copied().unwrap_or(0);
        let failure = if waiting >= self.options.client_requests_max {
            Some(CLIENT_FULL)
        } else if service.queue.len() >= self.options.queue_requests_max
            || service.queue.bytes().saturating_add(bytes) > self.options.queue_bytes_max
        {
            Some(QUEUE_FULL)
        } else if self.kept_bytes.saturating_add(bytes) > self.options.queued_bytes_max {
            Some(ALL_FULL)
        } else {
            None
        };
        if let Some(failure) = failure {
            return self.refuse(name, &job, failure, sink);
        }
        job.detach();
        *self.clients.entry(job.client.clone()).or_default() += 1;
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        service.queue.push_back(job);
    }

    /// Counts a request that leaves its queue.
    fn unqueue(&mut self, job: &Job) {
        self.kept_bytes = self.kept_bytes.saturating_sub(job.bytes());
        if let Some(waiting) = self.clients.get_mut(&job.client) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                self.clients.remove(&job.client);
            }
        }
    }

    /// Puts a request whose worker is gone before all others of its priority. Limits do not apply: it was admitted.
    /// Its time begins again.
    pub(super) fn requeue(&mut self, now: Instant, name: &Bytes, mut job: Job) {
        job.expires = clock::after(now, job.wait);
        let Some(service) = self.services.get_mut(name) else { return };
        *self.clients.entry(job.client.clone()).or_default() += 1;
        self.kept_bytes = self.kept_bytes.saturating_add(job.bytes());
        service.queue.push_front(job);
    }

    /// Passes waiting requests to idle workers.
    pub(super) fn dispatch(&mut self, now: Instant, name: &Bytes, sink: &mut impl Sink) {
        loop {
            let Some(service) = self.services.get_mut(name) else { return };
            if service.idle.is_empty() {
                return;
            }
            let Some(job) = service.queue.pop() else { return };
            self.unqueue(&job);
            if now >= job.expires {
                self.stats.requests_expired += 1;
                self.fail(name, &job, EXPIRED, sink);
            } else if let Some(job) = self.assign(now, name, job, sink) {
                self.requeue(now, name, job);
                return;
            }
        }
    }

    /// Removes the requests of all queues that have waited for too long.
    pub(super) fn expire_requests(&mut self, now: Instant, sink: &mut impl Sink) {
        let mut expired = Vec::new();
        for (name, service) in &mut self.services {
            expired.extend(
                service.queue.take(|job| now >= job.expires).into_iter().map(|job| (name.clone(), job)),
            );
        }
        self.stats.requests_expired += expired.len() as u64;
        for (name, job) in expired {
            self.unqueue(&job);
            self.fail(&name, &job, EXPIRED, sink);
        }
    }

    /// Removes the waiting requests of a client that is gone.
    pub(super) fn remove_client(&mut self, client: &Bytes) {
        if !self.clients.contains_key(client) {
            return;
        }
        let mut orphans = Vec::new();
        for service in self.services.values_mut() {
            orphans.extend(service.queue.take_client(client));
        }
        self.stats.orphaned += orphans.len() as u64;
        for job in &orphans {
            self.unqueue(job);
        }
    }

    fn refuse(&mut self, name: &Bytes, job: &Job, failure: Failure, sink: &mut impl Sink) {
        self.stats.refused += 1;
        self.fail(name, job, failure, sink);
    }

    /// Reports a failure to a client with the extension; the protocol has no word for it.
    pub(super) fn fail(&mut self, name: &Bytes, job: &Job, (code, text): Failure, sink: &mut impl Sink) {
        tracing::debug!(
            target: "switchboard::pattern", service = %name.escape_ascii(), client = %job.client.escape_ascii(), text,
            "majordomo: request failed"
        );
        if job.tag.is_some() {
            self.pass(name, job, true, code, vec![Bytes::from_static(text.as_bytes())], sink);
        }
    }

    /// Passes a reply to its client. Returns false if it was dropped.
    pub(super) fn pass(
        &mut self,
        name: &Bytes,
        job: &Job,
        is_final: bool,
        code: Code,
        body: Vec<Bytes>,
        sink: &mut impl Sink,
    ) -> bool {
        let is_passed = !job.is_cut && (is_final || job.version != Version::V1) && {
            let tagged = job.tagged(code.number() as u8);
            let client = (job.client.clone(), job.version);
            let reply = command::client_reply(client, is_final, tagged, name.clone(), body);
            sink.send(reply) == Sent::Passed
        };
        if !is_passed {
            self.stats.replies_dropped += 1;
        }
        is_passed
    }
}
