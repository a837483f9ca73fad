//! A server that is killed and started again on its port, and what its callers receive.

use std::{fmt::Debug, time::Duration};
use switchboard::{Running, Server};
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, Delivery, Gap, Subscription, TopicOptions};

/// A server of a bus on a port that it keeps.
pub(crate) struct Host {
    running: Option<Running>,
    url: String,
}

impl Host {
    pub(crate) async fn start(bus: &Bus) -> Host {
        let running = serve(bus, "tcp://127.0.0.1:0").await.unwrap();
        Host { url: running.url(), running: Some(running) }
    }

    /// Closes all connections at once, as a killed process does.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// Starts a server on the same port.
    pub(crate) async fn restart(&mut self, bus: &Bus) {
        // The killed one closes its socket in its own tasks.
        self.running = Some(loop {
            match serve(bus, &self.url).await {
                Ok(running) => break running,
                Err(_) => tokio::task::yield_now().await,
            }
        });
    }

    /// Connects with these options of the channel; `ws` first means a WebSocket.
    pub(crate) async fn connect(&self, options: &str) -> Bus {
        let url = match options.strip_prefix("ws") {
            Some(options) => self.url.replacen("tcp", "ws", 1) + options,
            None => self.url.clone() + options,
        };
        Bus::connect(&url).await.unwrap()
    }
}

async fn serve(bus: &Bus, url: &str) -> switchboard::Result<Running, switchboard::Error> {
    Server::new().add(BusServer::new(bus.clone())).listen(url).start().await
}

/// A bus whose topics keep this many entries.
pub(crate) fn with_history(entries: usize) -> Bus {
    let options = TopicOptions::new().history(entries, Duration::MAX);
    Bus::builder().topics(">", options).unwrap().build()
}

/// Receives an item; the message and the offset of an entry.
pub(crate) async fn entry<T: Clone + Debug>(subscription: &mut Subscription<T>) -> (T, u64) {
    match subscription.next().await.unwrap() {
        Some(Delivery::Entry(message)) => ((*message).clone(), message.position().offset),
        other => panic!("no entry: {other:?}"),
    }
}

pub(crate) async fn entries<T: Clone + Debug>(subscription: &mut Subscription<T>, count: usize) -> Vec<T> {
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push(entry(subscription).await.0);
    }
    entries
}

pub(crate) async fn gap<T: Debug>(subscription: &mut Subscription<T>) -> Gap {
    match subscription.next().await.unwrap() {
        Some(Delivery::Gap(gap)) => gap,
        other => panic!("no gap: {other:?}"),
    }
}
