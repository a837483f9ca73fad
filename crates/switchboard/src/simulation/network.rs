//! The network between callers and servers: one link for each server, with the weather that the run makes.
//!
//! A link listens where callers dial and dials its server for each of them. Bytes keep their order within a
//! connection, as those of TCP do; what is on its way in two of them arrives in any order.

use super::chance::Chance;
use crate::net::memory;
use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split},
    sync::{mpsc, watch},
    task::AbortHandle,
    time::{Instant, sleep_until},
};

/// What is on its way in one direction of a connection; a sender waits for more.
const FLIGHT_MAX: usize = 64;

/// The way to one server.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    weather: watch::Sender<Weather>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, AbortHandle>,
}

/// How a link is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Somebody listens.
    pub(super) listens: bool,
    /// Bytes go to the server, and come back.
    pub(super) flows: [bool; 2],
    /// Milliseconds, from and to.
    pub(super) latency: (u64, u64),
    /// Bytes that pass in a millisecond.
    pub(super) width: u64,
}

impl Weather {
    pub(super) const FINE: Weather =
        Weather { listens: true, flows: [true, true], latency: (0, 3), width: 100_000 };
}

impl Link {
    /// A link that listens at `front` and dials `back`.
    pub(super) fn new(front: String, back: String, chance: Chance) -> Link {
        let link =
            Link(Arc::new(Shared { weather: watch::Sender::new(Weather::FINE), open: Mutex::default() }));
        tokio::spawn(link.clone().run(front, back, chance));
        link
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Weather)) {
        self.0.weather.send_modify(change);
    }

    pub(super) fn heal(&self) {
        self.set(|weather| *weather = Weather::FINE);
    }

    /// Cuts the connections that are open, or only one of them; says how many.
    pub(super) fn cut(&self, all: bool, chance: &Chance) -> usize {
        let mut open = self.open();
        if all {
            let cut = std::mem::take(&mut open.connections);
            cut.values().for_each(AbortHandle::abort);
            return cut.len();
        }
        let keys: Vec<_> = open.connections.keys().copied().collect();
        if keys.is_empty() {
            return 0;
        }
        let cut = open.connections.remove(&chance.one_of(&keys));
        cut.into_iter().map(|connection| connection.abort()).count()
    }

    /// Connections that are open.
    pub(super) fn connections(&self) -> usize {
        self.open().connections.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap()
    }

    async fn run(self, front: String, back: String, chance: Chance) {
        let mut weather = self.0.weather.subscribe();
        loop {
            if weather.wait_for(|weather| weather.listens).await.is_err() {
                return;
            }
            let mut listener = memory::Listener::bind(&front).expect("nobody else has the name");
            loop {
                let accepted = tokio::select! {
                    biased;
                    _ = weather.wait_for(|weather| !weather.listens) => break,
                    accepted = listener.accept() => accepted,
                };
                let (Ok(caller), chance) = (accepted, chance.child()) else { return };
                self.connect(caller, &back, chance);
            }
        }
    }

    fn connect(&self, caller: DuplexStream, back: &str, chance: Chance) {
        let (back, link) = (back.to_owned(), self.clone());
        let mut open = self.open();
        open.next += 1;
        let key = open.next;
        let listed = Listed { key, link: self.clone() };
        let carried = tokio::spawn(async move {
            let _listed = listed;
            // Nobody there: the caller sees its connection close.
            let Ok(server) = memory::dial(&back).await else { return };
            let ((from_caller, to_caller), (from_server, to_server)) = (split(caller), split(server));
            let up = link.carry(0, from_caller, to_server, chance.child());
            let down = link.carry(1, from_server, to_caller, chance.child());
            // A direction that has ended leaves the other one open, as TCP does.
            let (mut up, mut down) = (pin!(up), pin!(down));
            let mut over = [false; 2];
            poll_fn(|cx| {
                over[0] = over[0] || up.as_mut().poll(cx).is_ready();
                over[1] = over[1] || down.as_mut().poll(cx).is_ready();
                if over == [true, true] { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        });
        open.connections.insert(key, carried.abort_handle());
    }

    /// Carries bytes one way until their sender ends, or their receiver has gone.
    async fn carry(
        &self,
        way: usize,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        chance: Chance,
    ) {
        let (send, mut receive) = mpsc::channel::<(Instant, Vec<u8>)>(FLIGHT_MAX);
        let reading = async move {
            let mut last = Instant::now();
            let mut buffer = vec![0; 16 << 10];
            loop {
                // Reads end anywhere, also in the middle of a frame.
                let most = if chance.percent(10) { chance.within(1..=40) as usize } else { buffer.len() };
                let Ok(count) = from.read(&mut buffer[..most]).await else { return };
                if count == 0 {
                    return;
                }
                let Weather { latency: (least, most), width, .. } = *self.0.weather.borrow();
                let takes = Duration::from_millis(chance.within(least..=most) + count as u64 / width);
                last = last.max(Instant::now() + takes);
                if send.send((last, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let writing = async move {
            let mut weather = self.0.weather.subscribe();
            while let Some((at, bytes)) = receive.recv().await {
                sleep_until(at).await;
                // In a partition nothing is lost, as with TCP; it waits.
                if weather.wait_for(|weather| weather.flows[way]).await.is_err()
                    || to.write_all(&bytes).await.is_err()
                {
                    return;
                }
            }
            // The receiver has gone, which ends it as well.
            let _ = to.shutdown().await;
        };
        tokio::select! {
            biased;
            () = writing => {}
            // What was read is still to be written.
            () = async { reading.await; std::future::pending().await } => {}
        }
    }
}

/// Takes a connection off the list however it ends.
struct Listed {
    key: u64,
    link: Link,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.link.open().connections.remove(&self.key);
    }
}
