//! The responder of this process: one task that responds to queries for all registered instances.

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

/// A network, and the instances that are registered on it.
pub(super) struct Link {
    style: Style,
    group: SocketAddrV4,
    interface: Ipv4Addr,
    registered: Arc<Mutex<Announcements>>,
    responder: Mutex<Option<Responder>>,
}

/// Datagrams by label, each with the number of its registration.
type Announcements = BTreeMap<String, (u64, Arc<[u8]>)>;

struct Responder {
    socket: Arc<UdpSocket>,
    task: AbortHandle,
}

/// Time in which queries are collected for one response. All hosts receive it, so there need not be many.
const GATHER: Duration = Duration::from_millis(40);

impl Link {
    pub(super) fn new(style: Style, group: SocketAddrV4, interface: Ipv4Addr) -> Link {
        Link { style, group, interface, registered: Arc::default(), responder: Mutex::default() }
    }

    /// Opens a socket that receives the group. Several processes of a machine may have one.
    pub(super) fn open(&self) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // Bound to the group, it receives nothing else.
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

    /// Returns the socket of the responder task, and starts the task if it does not run.
    fn responder(&self) -> io::Result<Arc<UdpSocket>> {
        let mut responder = self.responder.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with its runtime.
        if let Some(responder) = responder.as_ref().filter(|responder| !responder.task.is_finished()) {
            return Ok(responder.socket.clone());
        }
        let socket = Arc::new(self.open()?);
        let responding = respond(self.style, socket.clone(), self.group, self.registered.clone());
        let task = tokio::spawn(responding).abort_handle();
        *responder = Some(Responder { socket: socket.clone(), task });
        Ok(socket)
    }

    fn registered(&self) -> MutexGuard<'_, Announcements> {
        lock(&self.registered)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.get_mut().unwrap_or_else(PoisonError::into_inner) {
            responder.task.abort();
        }
    }
}

fn lock(registered: &Mutex<Announcements>) -> MutexGuard<'_, Announcements> {
    registered.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn respond(
    style: Style,
    socket: Arc<UdpSocket>,
    group: SocketAddrV4,
    registered: Arc<Mutex<Announcements>>,
) {
    let mut datagram = vec![0; records::DATAGRAM_BYTES_MAX];
    loop {
        let is_query = match socket.recv(&mut datagram).await {
            Ok(length) => records::is_query(style, &datagram[..length]),
            // The interface may be down; registered instances are announced again with their renewals.
            Err(_) => {
                sleep(GATHER).await;
                false
            }
        };
        if !is_query {
            continue;
        }
        sleep(GATHER).await;
        // The first response covers the queries that arrived meanwhile.
        while socket.try_recv(&mut datagram).is_ok() {}
        let datagrams: Vec<_> = lock(&registered).values().map(|(_, datagram)| datagram.clone()).collect();
        for datagram in datagrams {
            // A host that misses the response queries again.
            let _ = socket.send_to(&datagram, group).await;
        }
    }
}

/// A registered instance, which is announced.
pub(super) struct MdnsRegistration {
    link: Arc<Link>,
    name: String,
    label: String,
    number: u64,
    datagram: Arc<[u8]>,
    farewell: Vec<u8>,
}

impl MdnsRegistration {
    pub(super) fn new(
        link: Arc<Link>,
        name: &str,
        instance: &Instance,
        ttl: Duration,
    ) -> Result<MdnsRegistration> {
        let seconds = ttl.as_millis().div_ceil(1000).clamp(1, u128::from(u32::MAX)) as u32;
        let datagram: Arc<[u8]> = records::announcement(link.style, instance, seconds)?.into();
        let farewell = records::announcement(link.style, instance, 0)?;
        let label = records::label(instance);
        let mut registered = link.registered();
        let number = registered.get(&label).map_or(1, |(number, _)| number + 1);
        registered.insert(label.clone(), (number, datagram.clone()));
        drop(registered);
        Ok(MdnsRegistration { link, name: name.to_owned(), label, number, datagram, farewell })
    }

    async fn announce(&self, datagram: &[u8]) -> Result<()> {
        let failed =
            |error: io::Error| Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe);
        let socket = self.link.responder().map_err(failed)?;
        self.link.send(&socket, datagram).await.map_err(failed)
    }

    fn is_last(registered: &Announcements, label: &str, number: u64) -> bool {
        registered.get(label).is_some_and(|(last, _)| *last == number)
    }
}

impl discover::Registration for MdnsRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.announce(&self.datagram).await })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let is_last = {
                let mut registered = self.link.registered();
                let is_last = MdnsRegistration::is_last(&registered, &self.label, self.number);
                if is_last {
                    registered.remove(&self.label);
                }
                is_last
            };
            if is_last { self.announce(&self.farewell).await } else { Ok(()) }
        })
    }
}

impl Drop for MdnsRegistration {
    fn drop(&mut self) {
        let mut registered = self.link.registered();
        // A newer registration of the same instance stays.
        if MdnsRegistration::is_last(&registered, &self.label, self.number) {
            registered.remove(&self.label);
        }
    }
}
