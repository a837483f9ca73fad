//! The reliable request patterns, and their failures: killed, slow and silent peers, split networks, full queues.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod forwarder;
mod freelance;
mod majordomo;
mod pirate;
mod titanic;

use std::time::Duration;
use switchboard_socket::{Dealer, Message, SocketOptions};
use tokio::time::timeout;

/// Time for anything that must happen; tests fail after it.
const LIMIT: Duration = Duration::from_secs(30);

/// Pause between heartbeats in tests of failures.
const HEARTBEAT: Duration = Duration::from_millis(50);

/// Waits for a result, within the limit.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("in time")
}

/// Waits until a condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(LIMIT, wait).await.is_ok(), "not in time: {what}");
}

/// A peer that the test plays itself. It closes at once when it is dropped, like a killed process.
async fn dealer(endpoint: &str) -> Dealer {
    let mut options = SocketOptions::default();
    options.timeouts.linger = Some(Duration::ZERO);
    let dealer = Dealer::with_options(options).unwrap();
    dealer.connect_to(endpoint).await.unwrap();
    dealer
}

fn text(message: &Message) -> String {
    String::from_utf8(message.body().to_vec()).unwrap()
}
