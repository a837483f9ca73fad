//! What this process tells: one task that answers questions for all that it holds.

use super::records;
use crate::layout::Style;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard::{
    Result, Retry, Status,
    discover::{self, BoxFuture, Instance},
};
use tokio::{net::UdpSocket, task::AbortHandle, time::sleep};

/// A network, and what is held on it.
pub(super) struct Link {
    style: Style,
    group: SocketAddrV4,
    interface: Ipv4Addr,
    told: Arc<Mutex<Tales>>,
    speaker: Mutex<Option<Speaker>>,
}

/// Datagrams by label, each with the number of the registration that it is of.
type Tales = BTreeMap<String, (u64, Arc<[u8]>)>;

struct Speaker {
    socket: Arc<UdpSocket>,
    task: AbortHandle,
}

/// Questions that come together get one answer. Everybody hears it, so there need not be many.
const GATHER: Duration = Duration::from_millis(40);

impl Link {
    pub(super) fn new(style: Style, group: SocketAddrV4, interface: Ipv4Addr) -> Link {
        Link { style, group, interface, told: Arc::default(), speaker: Mutex::default() }
    }

    /// A socket that hears the group. Several processes of a machine may have one.
    pub(super) fn open(&self) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // Bound to the group, it hears nothing else.
        socket.bind(&self.group.into())?;
        socket.join_multicast_v4(self.group.ip(), &self.interface)?;
        if !self.interface.is_unspecified() {
            socket.set_multicast_if_v4(&self.interface)?;
        }
        socket.set_multicast_loop_v4(true)?;
        UdpSocket::from_std(socket.into())
    }

    pub(super) async fn send(&self, socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
        socket.send_to(datagram, self.group).await.map(drop)
    }

    /// The socket of the task that answers, which is started if it does not run.
    fn speaker(&self) -> io::Result<Arc<UdpSocket>> {
        let mut speaker = self.speaker.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with its runtime.
        if let Some(speaker) = speaker.as_ref().filter(|speaker| !speaker.task.is_finished()) {
            return Ok(speaker.socket.clone());
        }
        let socket = Arc::new(self.open()?);
        let answering = answer(self.style, socket.clone(), self.group, self.told.clone());
        let task = tokio::spawn(answering).abort_handle();
        *speaker = Some(Speaker { socket: socket.clone(), task });
        Ok(socket)
    }

    fn told(&self) -> MutexGuard<'_, Tales> {
        lock(&self.told)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(speaker) = self.speaker.get_mut().unwrap_or_else(PoisonError::into_inner) {
            speaker.task.abort();
        }
    }
}

fn lock(told: &Mutex<Tales>) -> MutexGuard<'_, Tales> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(style: Style, socket: Arc<UdpSocket>, group: SocketAddrV4, told: Arc<Mutex<Tales>>) {
    let mut datagram = vec![0; records::DATAGRAM_BYTES_MAX];
    loop {
        let asked = match socket.recv(&mut datagram).await {
            Ok(length) => records::is_question(style, &datagram[..length]),
            // An interface that went, say; what is held says itself again with its renewal.
            Err(_) => {
                sleep(GATHER).await;
                false
            }
        };
        if !asked {
            continue;
        }
        sleep(GATHER).await;
        // They are answered with the first.
        while socket.try_recv(&mut datagram).is_ok() {}
        let datagrams: Vec<_> = lock(&told).values().map(|(_, datagram)| datagram.clone()).collect();
        for datagram in datagrams {
            // Whoever does not hear it asks again.
            let _ = socket.send_to(&datagram, group).await;
        }
    }
}

/// An instance that is told of.
pub(super) struct Held {
    link: Arc<Link>,
    name: String,
    label: String,
    number: u64,
    datagram: Arc<[u8]>,
    farewell: Vec<u8>,
}

impl Held {
    pub(super) fn new(link: Arc<Link>, name: &str, instance: &Instance, ttl: Duration) -> Result<Held> {
        let seconds = ttl.as_millis().div_ceil(1000).clamp(1, u128::from(u32::MAX)) as u32;
        let datagram: Arc<[u8]> = records::answer(link.style, instance, seconds)?.into();
        let farewell = records::answer(link.style, instance, 0)?;
        let label = records::label(instance);
        let mut told = link.told();
        let number = told.get(&label).map_or(1, |(number, _)| number + 1);
        told.insert(label.clone(), (number, datagram.clone()));
        drop(told);
        Ok(Held { link, name: name.to_owned(), label, number, datagram, farewell })
    }

    async fn say(&self, datagram: &[u8]) -> Result<()> {
        let failed =
            |error: io::Error| Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe);
        let socket = self.link.speaker().map_err(failed)?;
        self.link.send(&socket, datagram).await.map_err(failed)
    }

    fn is_last(told: &Tales, label: &str, number: u64) -> bool {
        told.get(label).is_some_and(|(last, _)| *last == number)
    }
}

impl discover::Held for Held {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.say(&self.datagram).await })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let is_last = {
                let mut told = self.link.told();
                let is_last = Held::is_last(&told, &self.label, self.number);
                if is_last {
                    told.remove(&self.label);
                }
                is_last
            };
            if is_last { self.say(&self.farewell).await } else { Ok(()) }
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut told = self.link.told();
        // A newer registration of the same instance stays.
        if Held::is_last(&told, &self.label, self.number) {
            told.remove(&self.label);
        }
    }
}
