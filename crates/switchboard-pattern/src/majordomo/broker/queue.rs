//! The queue of a service, and the requests in it.

use super::super::command::{Tagged, Version};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

/// Memory of a request without its frames, and of a frame without its bytes, as the limits count them.
const JOB_BYTES: usize = 384;
const FRAME_BYTES: usize = 64;

/// A request that waits for a worker, or that a worker has.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) client: Bytes,
    pub(super) version: Version,
    /// Number that replies repeat, for clients with the extension.
    pub(super) tag: Option<u64>,
    pub(super) priority: u8,
    /// Deliveries that are left.
    pub(super) deliveries: u8,
    /// Time that it may wait in a queue, and the end of it.
    pub(super) wait: Duration,
    pub(super) expires: Instant,
    /// Empty while a worker has the request and no delivery is left.
    pub(super) body: Vec<Bytes>,
    /// A part of its reply was dropped, so the rest is dropped as well.
    pub(super) is_cut: bool,
    /// A part of its reply was passed to the client, so it is not delivered again.
    pub(super) is_answered: bool,
}

impl Job {
    /// Returns the memory of the request in bytes, as the limits count it.
    pub(super) fn bytes(&self) -> usize {
        let body = self.body.iter().map(|frame| frame.len().saturating_add(FRAME_BYTES));
        body.fold(JOB_BYTES, usize::saturating_add)
    }

    /// Copies the body out of the buffers that it was read into, which are larger.
    pub(super) fn detach(&mut self) {
        for frame in &mut self.body {
            *frame = Bytes::copy_from_slice(frame);
        }
    }

    pub(super) fn tagged(&self, code: u8) -> Option<Tagged> {
        self.tag.map(|tag| Tagged { code, tag })
    }
}

/// Requests by priority, the highest first. The clients of a priority take turns; the requests of a client are in
/// order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    levels: BTreeMap<u8, Level>,
    len: usize,
    bytes: usize,
}

/// Requests of one priority.
#[derive(Debug, Default)]
struct Level {
    /// Clients with requests; the next one is the first.
    turns: VecDeque<Bytes>,
    /// In boxes, because a list of one request has room for four.
    jobs: HashMap<Bytes, VecDeque<Box<Job>>>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a request behind those of its client.
    pub(super) fn push_back(&mut self, job: Job) {
        self.count(&job);
        let level = self.levels.entry(job.priority).or_default();
        let jobs = level.jobs.entry(job.client.clone()).or_default();
        if jobs.is_empty() {
            level.turns.push_back(job.client.clone());
        }
        jobs.push_back(Box::new(job));
    }

    /// Adds a request before all others of its priority.
    pub(super) fn push_front(&mut self, job: Job) {
        self.count(&job);
        let level = self.levels.entry(job.priority).or_default();
        level.turns.retain(|client| *client != job.client);
        level.turns.push_front(job.client.clone());
        level.jobs.entry(job.client.clone()).or_default().push_front(Box::new(job));
    }

    fn count(&mut self, job: &Job) {
        self.len = self.len.saturating_add(1);
        self.bytes = self.bytes.saturating_add(job.bytes());
    }

    /// Removes the next request.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let mut entry = self.levels.last_entry()?;
        let job = entry.get_mut().pop();
        if entry.get().turns.is_empty() {
            entry.remove();
        }
        let job = job?;
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(job.bytes());
        Some(job)
    }

    /// Removes the requests of a client.
    pub(super) fn take_client(&mut self, client: &Bytes) -> Vec<Job> {
        let mut taken = Vec::new();
        for level in self.levels.values_mut() {
            if let Some(jobs) = level.jobs.remove(client) {
                taken.extend(jobs.into_iter().map(|job| *job));
                level.turns.retain(|turn| turn != client);
            }
        }
        self.removed(&taken);
        taken
    }

    /// Removes the requests for which `is_over` returns true.
    pub(super) fn take(&mut self, mut is_over: impl FnMut(&Job) -> bool) -> Vec<Job> {
        let mut taken = Vec::new();
        for level in self.levels.values_mut() {
            level.take(&mut is_over, &mut taken);
        }
        self.removed(&taken);
        taken
    }

    /// Counts requests that were removed.
    fn removed(&mut self, taken: &[Job]) {
        if !taken.is_empty() {
            self.levels.retain(|_, level| !level.turns.is_empty());
        }
        for job in taken {
            self.len = self.len.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(job.bytes());
        }
    }
}

impl Level {
    fn pop(&mut self) -> Option<Job> {
        let client = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&client)?;
        let job = jobs.pop_front().map(|job| *job);
        if jobs.is_empty() {
            self.jobs.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        job
    }

    fn take(&mut self, is_over: &mut impl FnMut(&Job) -> bool, taken: &mut Vec<Job>) {
        let mut is_any_empty = false;
        for jobs in self.jobs.values_mut() {
            if !jobs.iter().any(|job| is_over(job)) {
                continue;
            }
            for job in std::mem::take(jobs) {
                if is_over(&job) { taken.push(*job) } else { jobs.push_back(job) }
            }
            is_any_empty |= jobs.is_empty();
        }
        if is_any_empty {
            self.jobs.retain(|_, jobs| !jobs.is_empty());
            self.turns.retain(|client| self.jobs.contains_key(client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(priority: u8, name: &'static str) -> Job {
        Job {
            client: Bytes::from_static(b"c"),
            version: Version::V2,
            tag: None,
            priority,
            deliveries: 1,
            wait: Duration::from_secs(1),
            expires: Instant::now(),
            body: vec![Bytes::from_static(name.as_bytes())],
            is_cut: false,
            is_answered: false,
        }
    }

    #[test]
    fn higher_priorities_come_first_and_equal_ones_in_order() {
        let mut queue = Queue::default();
        for (priority, name) in [(0, "a"), (5, "b"), (0, "c"), (5, "d"), (255, "e")] {
            queue.push_back(job(priority, name));
        }
        queue.push_front(job(0, "f"));
        assert_eq!(queue.len(), 6);
        let taken = queue.take(|job| &*job.body[0] == b"d");
        assert_eq!((taken.len(), queue.len()), (1, 5));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|job| job.body[0].clone()).collect();
        assert_eq!(order, ["e", "b", "f", "a", "c"]);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn clients_of_a_priority_take_turns() {
        let mut queue = Queue::default();
        let of = |client: &'static str, name| Job {
            client: Bytes::from_static(client.as_bytes()),
            ..job(0, name)
        };
        for name in ["a1", "a2", "a3"] {
            queue.push_back(of("a", name));
        }
        queue.push_back(of("b", "b1"));
        queue.push_back(of("c", "c1"));
        queue.push_front(of("c", "c0"));
        assert_eq!(queue.take(|job| &*job.body[0] == b"b1").len(), 1);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|job| job.body[0].clone()).collect();
        assert_eq!(order, ["c0", "a1", "c1", "a2", "a3"]);
    }

    #[test]
    fn the_requests_of_a_client_are_removed_alone() {
        let mut queue = Queue::default();
        let of = |client: &'static str, priority, name| Job {
            client: Bytes::from_static(client.as_bytes()),
            ..job(priority, name)
        };
        for (client, priority, name) in [("a", 0, "a1"), ("b", 0, "b1"), ("a", 0, "a2"), ("a", 7, "a3")] {
            queue.push_back(of(client, priority, name));
        }
        assert_eq!(queue.take_client(&Bytes::from_static(b"a")).len(), 3);
        assert_eq!((queue.take_client(&Bytes::from_static(b"a")).len(), queue.levels.len()), (0, 1));
        queue.push_back(of("a", 0, "a4"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|job| job.body[0].clone()).collect();
        assert_eq!(order, ["b1", "a4"]);
        assert_eq!((queue.len(), queue.bytes(), queue.levels.len()), (0, 0, 0));
    }

    #[test]
    fn a_waiting_request_needs_what_the_limits_count() {
        // The box, a list for one client with its key and its turn, and a list of frames.
        let list = size_of::<(Bytes, VecDeque<Box<Job>>)>() + 4 * size_of::<Box<Job>>() + size_of::<Bytes>();
        assert!(size_of::<Job>() + list <= JOB_BYTES, "{} and {list}", size_of::<Job>());
        assert!(size_of::<Bytes>() <= FRAME_BYTES);
    }
}
