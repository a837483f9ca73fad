//! The queue of a service, and the requests in it.

use super::super::command::{Tagged, Version};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// Memory of a request without its frames, and of a frame without its bytes, as the limits count them.
const JOB_BYTES: usize = 256;
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

/// Requests by priority, the highest first; those of a priority in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    levels: BTreeMap<u8, VecDeque<Job>>,
    len: usize,
    bytes: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a request behind those of its priority.
    pub(super) fn push_back(&mut self, job: Job) {
        self.count(&job);
        self.levels.entry(job.priority).or_default().push_back(job);
    }

    /// Adds a request before those of its priority.
    pub(super) fn push_front(&mut self, job: Job) {
        self.count(&job);
        self.levels.entry(job.priority).or_default().push_front(job);
    }

    fn count(&mut self, job: &Job) {
        self.len = self.len.saturating_add(1);
        self.bytes = self.bytes.saturating_add(job.bytes());
    }

    /// Removes the next request.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let mut level = self.levels.last_entry()?;
        let job = level.get_mut().pop_front();
        if level.get().is_empty() {
            level.remove();
        }
        let job = job?;
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(job.bytes());
        Some(job)
    }

    /// Removes the requests for which `is_over` returns true.
    pub(super) fn take(&mut self, mut is_over: impl FnMut(&Job) -> bool) -> Vec<Job> {
        let mut taken = Vec::new();
        if self.levels.values().flatten().any(&mut is_over) {
            for level in self.levels.values_mut() {
                for job in std::mem::take(level) {
                    if is_over(&job) { taken.push(job) } else { level.push_back(job) }
                }
            }
            self.levels.retain(|_, level| !level.is_empty());
        }
        for job in &taken {
            self.len = self.len.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(job.bytes());
        }
        taken
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
    fn a_waiting_request_needs_what_the_limits_count() {
        assert!(size_of::<Job>() + size_of::<Bytes>() <= JOB_BYTES, "{}", size_of::<Job>());
        assert!(size_of::<Bytes>() <= FRAME_BYTES);
    }
}
