//! Semantics of the socket types, over each transport.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod ends;
mod lifecycle;
mod limits;
mod options;
mod patterns;
mod publishers;
mod security;
mod stalled;
mod stream;
mod threads;
mod transports;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use switchboard_socket::{Message, Socket, SocketOptions, SocketType};
use tokio::time::timeout;

/// Time for anything that must happen; tests fail after it.
const LIMIT: Duration = Duration::from_secs(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns an endpoint to bind, of each transport.
fn endpoints() -> [String; 3] {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path: PathBuf =
        std::env::temp_dir().join(format!("switchboard-{}-{number}.sock", std::process::id()));
    ["tcp://127.0.0.1:0".to_owned(), format!("ipc://{}", path.display()), format!("inproc://test-{number}")]
}

fn socket(kind: SocketType) -> Socket {
    Socket::new(kind, SocketOptions::default()).unwrap()
}

/// Creates two sockets; the first one is bound, the other one connects.
async fn pair(bound: SocketType, connecting: SocketType, endpoint: &str) -> (Socket, Socket) {
    let (bound, connecting) = (socket(bound), socket(connecting));
    join(&bound, &connecting, endpoint).await;
    (bound, connecting)
}

async fn join(bound: &Socket, connecting: &Socket, endpoint: &str) {
    let endpoint = bound.bind_to(endpoint).await.unwrap();
    connecting.connect_to(&endpoint.to_string()).await.unwrap();
}

async fn recv(socket: &Socket) -> Message {
    timeout(LIMIT, socket.recv()).await.expect("a message arrives in time").unwrap()
}

async fn text(socket: &Socket) -> String {
    String::from_utf8(recv(socket).await.body().to_vec()).unwrap()
}

async fn send(socket: &Socket, message: impl Into<Message>) {
    timeout(LIMIT, socket.send(message)).await.expect("there is room in time").unwrap();
}

/// Waits until a condition of the counters holds.
async fn until(socket: &Socket, condition: impl Fn(&switchboard_socket::SocketStats) -> bool) {
    let wait = async {
        while !condition(&socket.stats()) {
            tokio::task::yield_now().await;
        }
    };
    if timeout(LIMIT, wait).await.is_err() {
        panic!("not in time: {:?}", socket.stats());
    }
}
