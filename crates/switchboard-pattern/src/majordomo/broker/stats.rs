//! Snapshot of the counters of a broker.

/// Counters of a broker since its start, and its workers and queues now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BrokerStats {
    /// Messages that are no commands of the protocol; they were dropped.
    pub invalid: u64,
    /// Requests that were dropped because their client was gone.
    pub orphaned: u64,
    /// Bytes of the requests that wait, or that may be delivered again.
    pub queued_bytes: usize,
    /// Requests that were delivered again after their worker was gone.
    pub redelivered: u64,
    /// Requests that were refused because a limit was reached.
    pub refused: u64,
    /// Workers that were refused because a limit was reached.
    pub refused_workers: u64,
    /// Final replies that were passed to clients.
    pub replies: u64,
    /// Replies that were dropped: their client was gone or did not read, or their worker was removed before.
    pub replies_dropped: u64,
    /// Requests that arrived, those to `mmi.` included.
    pub requests: u64,
    /// Requests that were dropped after they waited for `request_wait_max`, or for the time that the client chose.
    pub requests_expired: u64,
    /// Requests that were lost with their worker: it was gone, and no further delivery was allowed.
    pub requests_lost: u64,
    /// Services, by name.
    pub services: Vec<ServiceStats>,
    /// Commands of workers that the protocol does not allow at the time, each answered by DISCONNECT. Some of them are
    /// normal after a broker was restarted or a worker was removed.
    pub unexpected: u64,
    /// Workers.
    pub workers: usize,
    /// Workers that were removed because they were silent.
    pub workers_expired: u64,
}

/// Counters of a service that has workers or waiting requests.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServiceStats {
    /// Name.
    pub name: String,
    /// Workers that wait for a request.
    pub idle: usize,
    /// Requests that wait for a worker.
    pub queued: usize,
    /// Final replies since the service got its first worker or request.
    pub replies: u64,
    /// Workers.
    pub workers: usize,
}
