//! A TCP forwarder that splits the network on demand: it holds bytes back, or cuts connections.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
    task::JoinHandle,
};

pub(crate) struct Forwarder {
    pub(crate) endpoint: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    target: Mutex<String>,
    is_split: AtomicBool,
    healed: Notify,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

impl Forwarder {
    /// Forwards to `tcp://HOST:PORT`.
    pub(crate) async fn to(endpoint: &str) -> Forwarder {
        let forwarder = Forwarder::without_target().await;
        forwarder.set_target(endpoint);
        forwarder
    }

    /// Refuses connections until it has a target.
    pub(crate) async fn without_target() -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Forwarder { endpoint, shared, accepting }
    }

    pub(crate) fn set_target(&self, endpoint: &str) {
        *self.shared.target.lock().unwrap() = endpoint.strip_prefix("tcp://").unwrap().to_owned();
    }

    /// Forwards nothing from now on; the connections stay open on both sides.
    pub(crate) fn split(&self) {
        self.shared.is_split.store(true, SeqCst);
    }

    /// Forwards again, and delivers what was held back.
    pub(crate) fn heal(&self) {
        self.shared.is_split.store(false, SeqCst);
        self.shared.healed.notify_waiters();
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let (target, of_connection) = (shared.target.lock().unwrap().clone(), shared.clone());
        let connection = tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::select! {
                () = copy(near_read, far_write, &of_connection) => {}
                () = copy(far_read, near_write, &of_connection) => {}
            }
        });
        shared.connections.lock().unwrap().push(connection);
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        loop {
            let healed = shared.healed.notified();
            if !shared.is_split.load(SeqCst) {
                break;
            }
            healed.await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
