//! The exporter task: sends batches of spans when a batch is full or the interval is over, and metrics with
//! them.

use super::{Counts, Settings, json, spans::Span};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};
use switchboard_core::{Result, ServerStats, clock};
use switchboard_net::web::{HttpRequest, Site};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

/// Commands to the exporter.
pub(super) enum Order {
    Flush(oneshot::Sender<()>),
    Metrics(Stats),
    Span(Box<Span>),
}

/// Function that returns the counters of a server.
pub(super) type Stats = Box<dyn Fn() -> ServerStats + Send + Sync>;

/// Maximum number of spans per request.
const BATCH: usize = 512;
/// Maximum number of servers whose counters are exported.
const SERVERS_MAX: usize = 64;

pub(super) struct Exporter {
    site: Site,
    settings: Settings,
    counts: Arc<Counts>,
    spans: Vec<Span>,
    servers: Vec<(Stats, SystemTime)>,
    /// The last request failed; the failure was logged once.
    has_failed: bool,
}

impl Exporter {
    pub(super) fn new(site: Site, settings: Settings, counts: Arc<Counts>) -> Exporter {
        Exporter { site, settings, counts, spans: Vec::new(), servers: Vec::new(), has_failed: false }
    }

    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut ticks = interval(self.settings.every.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            tokio::select! {
                    biased;
                    _ = ticks.tick() => self.send_all().await,
                    order = orders.recv() => match order {
                        None => return,
                        Some(Order::Flush(done)) => {
                            self.send_all().await;
                            // The receiver may be gone.
                            let _ = done.send(());
                        }
                        Some(Order::Metrics(stats)) => {
                            if self.servers.len() < SERVERS_MAX {
                                let uptime = stats().uptime;
                                let now = clock::time_of_day();
            self.servers.push((stats, now.checked_sub(uptime).unwrap_or(now)));
                            }
                        }
                        Some(Order::Span(span)) => {
                            self.spans.push(*span);
                            if self.spans.len() >= BATCH {
                                self.send_spans().await;
                            }
                        }
                    }
                }
        }
    }

    async fn send_all(&mut self) {
        self.send_spans().await;
        for at in 0..self.servers.len() {
            let (stats, since) = &self.servers[at];
            let body = json::metrics(&self.settings, &stats(), *since, clock::time_of_day());
            let sent = self.send("/v1/metrics", body).await;
            self.note(sent);
        }
    }

    async fn send_spans(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let count = self.spans.len() as u64;
        let body = json::spans(&self.settings, &self.spans);
        self.spans.clear();
        let sent = self.send("/v1/traces", body).await;
        let counter = if sent.is_ok() { &self.counts.sent } else { &self.counts.dropped };
        counter.fetch_add(count, Ordering::Relaxed);
        self.note(sent);
    }

    async fn send(&self, path: &str, body: String) -> Result<()> {
        let mut headers = self.settings.headers.clone();
        headers.push(("content-type", "application/json".to_owned()));
        let request = HttpRequest {
            method: "POST",
            path,
            headers: &headers,
            body: body.as_bytes(),
            limit: self.settings.timeout,
            ..HttpRequest::default()
        };
        self.site.call(request).await.map(drop)
    }

    fn note(&mut self, sent: Result<()>) {
        match sent {
            Ok(()) => self.has_failed = false,
            Err(status) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!("{}; the data is dropped", status.message());
            }
            Err(_) => {}
        }
    }
}
