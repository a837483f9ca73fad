//! The network between callers and servers: one link per server, whose conditions the run changes.
//!
//! A link listens at the address that callers dial, and dials its server for each connection. Bytes keep their order
//! within a connection, as in TCP; there is no order between two connections.

use super::random::Random;
use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use switchboard_net::net::memory;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split},
    sync::{mpsc, watch},
    task::AbortHandle,
    time::{Instant, sleep_until},
};

/// Maximum number of chunks in flight in one direction of a connection; a sender waits when it is reached.
const IN_FLIGHT_MAX: usize = 64;

/// Connection path to one server.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    state: watch::Sender<LinkState>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, AbortHandle>,
}

/// Conditions of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkState {
    /// True when the link accepts connections.
    pub(super) listens: bool,
    /// True when bytes flow: to the server, and from the server.
    pub(super) flows: [bool; 2],
    /// Minimum and maximum latency in milliseconds.
    pub(super) latency: (u64, u64),
    /// Bytes per millisecond.
    pub(super) width: u64,
}

impl LinkState {
    pub(super) const HEALTHY: LinkState =
        LinkState { listens: true, flows: [true, true], latency: (0, 3), width: 100_000 };
}

impl Link {
    /// Creates a link that listens at `front` and dials `back`.
    pub(super) fn new(front: String, back: String, random: Random) -> Link {
        let link =
            Link(Arc::new(Shared { state: watch::Sender::new(LinkState::HEALTHY), open: Mutex::default() }));
        tokio::spawn(link.clone().run(front, back, random));
        link
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut LinkState)) {
        self.0.state.send_modify(change);
    }

    pub(super) fn heal(&self) {
        self.set(|state| *state = LinkState::HEALTHY);
    }

    /// Aborts all open connections, or one of them; returns their number.
    pub(super) fn abort_connections(&self, all: bool, random: &Random) -> usize {
        let mut open = self.open();
        if all {
            let aborted = std::mem::take(&mut open.connections);
            aborted.values().for_each(AbortHandle::abort);
            return aborted.len();
        }
        let keys: Vec<_> = open.connections.keys().copied().collect();
        if keys.is_empty() {
            return 0;
        }
        let aborted = open.connections.remove(&random.one_of(&keys));
        aborted.into_iter().map(|connection| connection.abort()).count()
    }

    /// Number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.open().connections.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap()
    }

    async fn run(self, front: String, back: String, random: Random) {
        let mut state = self.0.state.subscribe();
        loop {
            if state.wait_for(|state| state.listens).await.is_err() {
                return;
            }
            let mut listener = memory::Listener::bind(&front).expect("the name is free");
            loop {
                let accepted = tokio::select! {
                    biased;
                    _ = state.wait_for(|state| !state.listens) => break,
                    accepted = listener.accept() => accepted,
                };
                let (Ok(caller), random) = (accepted, random.child()) else { return };
                self.connect(caller, &back, random);
            }
        }
    }

    fn connect(&self, caller: DuplexStream, back: &str, random: Random) {
        let (back, link) = (back.to_owned(), self.clone());
        let mut open = self.open();
        open.next += 1;
        let key = open.next;
        let listed = Listed { key, link: self.clone() };
        let copying = tokio::spawn(async move {
            let _listed = listed;
            // The dial fails: the caller sees its connection close.
            let Ok(server) = memory::dial(&back).await else { return };
            let ((from_caller, to_caller), (from_server, to_server)) = (split(caller), split(server));
            let up = link.copy(0, from_caller, to_server, random.child());
            let down = link.copy(1, from_server, to_caller, random.child());
            // The end of one direction leaves the other one open, as in TCP.
            let (mut up, mut down) = (pin!(up), pin!(down));
            let mut ended = [false; 2];
            poll_fn(|cx| {
                ended[0] = ended[0] || up.as_mut().poll(cx).is_ready();
                ended[1] = ended[1] || down.as_mut().poll(cx).is_ready();
                if ended == [true, true] { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        });
        open.connections.insert(key, copying.abort_handle());
    }

    /// Copies bytes in one direction until the sender ends or the receiver is closed.
    async fn copy(
        &self,
        direction: usize,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        random: Random,
    ) {
        let (send, mut receive) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT_MAX);
        let reading = async move {
            let mut last = Instant::now();
            let mut buffer = vec![0; 16 << 10];
            loop {
                // Reads end at any byte, also in the middle of a frame.
                let most = if random.percent(10) { random.within(1..=40) as usize } else { buffer.len() };
                let Ok(count) = from.read(&mut buffer[..most]).await else { return };
                if count == 0 {
                    return;
                }
                let LinkState { latency: (least, most), width, .. } = *self.0.state.borrow();
                let takes = Duration::from_millis(random.within(least..=most) + count as u64 / width);
                last = last.max(Instant::now() + takes);
                if send.send((last, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let writing = async move {
            let mut state = self.0.state.subscribe();
            while let Some((at, bytes)) = receive.recv().await {
                sleep_until(at).await;
                // A partition loses no bytes, as in TCP; they wait.
                if state.wait_for(|state| state.flows[direction]).await.is_err()
                    || to.write_all(&bytes).await.is_err()
                {
                    return;
                }
            }
            // The sender has ended; this closes the direction for the receiver.
            let _ = to.shutdown().await;
        };
        tokio::select! {
            biased;
            () = writing => {}
            // Bytes that were read must still be written.
            () = async { reading.await; std::future::pending().await } => {}
        }
    }
}

/// Removes a connection from the list when it ends.
struct Listed {
    key: u64,
    link: Link,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.link.open().connections.remove(&self.key);
    }
}
