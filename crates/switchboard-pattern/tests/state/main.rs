//! Patterns that share state and messages: caches, clones, pairs, surveys, pipelines.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod binary_star;
mod bus;
mod clone;
mod devices;
mod forwarder;
mod lag;
mod last_value_cache;
mod survey;

use std::time::Duration;
use switchboard_socket::{Message, Socket};
use tokio::time::timeout;

/// Time for anything that must happen; tests fail after it.
const LIMIT: Duration = Duration::from_secs(20);

const ANY: &str = "tcp://127.0.0.1:0";

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("in time")
}

async fn recv(socket: &impl AsRef<Socket>) -> Message {
    within(socket.as_ref().recv()).await.unwrap()
}

async fn text(socket: &impl AsRef<Socket>) -> String {
    String::from_utf8(recv(socket).await.body().to_vec()).unwrap()
}

/// Waits until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(wait).await;
}
