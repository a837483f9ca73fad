//! Limits and times of a broker.

use std::time::Duration;
use switchboard_core::Result;
use switchboard_wire::Status;

/// Limits and times of a broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// Time without a message of a worker that works on a request, after which the worker is removed. Many workers
    /// send no heartbeats while they work, so the time is that of the slowest request. The end of a connection is
    /// noticed at once in any case. Default 30 s.
    pub busy_expiry: Duration,
    /// Maximum number of requests of one client that wait in all queues; further ones are refused. Default 1000.
    pub client_requests_max: u32,
    /// Number of deliveries of a request whose client chose none: 1 never delivers again. Default 1.
    pub deliveries_default: u8,
    /// Pause between heartbeats to a worker, which has to be about that of the workers. Default 1 s.
    pub heartbeat_interval: Duration,
    /// Number of intervals without a message of an idle worker, after which the worker is removed. Default 4.
    pub liveness: u32,
    /// Maximum number of bytes of the requests that wait in the queue of a service, with 64 bytes for each frame and
    /// 384 for each request; further ones are refused. Default 16 MiB.
    pub queue_bytes_max: usize,
    /// Maximum number of requests that wait in the queue of a service; further ones are refused. Default 1000.
    pub queue_requests_max: usize,
    /// As `queue_bytes_max`, for all queues together, and for the requests that workers have and that may be
    /// delivered again. Default 256 MiB.
    pub queued_bytes_max: usize,
    /// Time that a request waits in a queue before it is dropped; a client may choose a shorter one. Default 60 s.
    pub request_wait_max: Duration,
    /// Maximum number of services with workers or waiting requests. Requests to further ones are refused, and workers
    /// of further ones are disconnected. Default 1000.
    pub services_max: usize,
    /// Maximum number of workers; further ones are disconnected. Default 10,000.
    pub workers_max: usize,
}

impl Default for BrokerOptions {
    fn default() -> BrokerOptions {
        BrokerOptions {
            busy_expiry: Duration::from_secs(30),
            client_requests_max: 1000,
            deliveries_default: 1,
            heartbeat_interval: Duration::from_secs(1),
            liveness: 4,
            queue_bytes_max: 16 << 20,
            queue_requests_max: 1000,
            queued_bytes_max: 256 << 20,
            request_wait_max: Duration::from_secs(60),
            services_max: 1000,
            workers_max: 10_000,
        }
    }
}

impl BrokerOptions {
    /// Checks that times and numbers are above 0, but those of queues: 0 there means that no request waits.
    pub(super) fn check(&self) -> Result<()> {
        let zeros = [
            ("busy_expiry", self.busy_expiry.is_zero()),
            ("deliveries_default", self.deliveries_default == 0),
            ("heartbeat_interval", self.heartbeat_interval.is_zero()),
            ("liveness", self.liveness == 0),
            ("services_max", self.services_max == 0),
            ("workers_max", self.workers_max == 0),
        ];
        match zeros.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(Status::invalid_argument(format!(
                "option {name} of the broker is 0; the minimum is above 0"
            ))),
            None => Ok(()),
        }
    }

    /// Time without a message after which an idle worker is removed.
    pub(super) fn idle_expiry(&self) -> Duration {
        self.heartbeat_interval.saturating_mul(self.liveness)
    }
}
