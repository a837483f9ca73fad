//! mDNS: servers tell of themselves by multicast on the local network (RFC 6762), in records as DNS-SD has them (RFC
//! 6763). There is no server that could be down, and nobody who checks what is said.

mod known;
mod records;
mod responder;
mod rpcx;

use crate::layout::Style;
use known::{Known, News};
use responder::{Held as Kept, Link};
use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::time::{Instant, sleep_until};

/// The registry without a server: whoever is on the same network.
///
/// Instances are of the type `_switchboard._tcp.local.`, so that other browsers show them, and are told to one IPv4
/// group. A registration is said again with each renewal and gone after its TTL, in whole seconds, or when its end is
/// said. Only what fits into one datagram is taken, [`INSTANCE_BYTES_MAX`]. Whoever can send to the group can say what
/// it likes: use it where all machines are your own. `confirm_after` has to be a second at least, or zero.
pub struct Mdns {
    discovery: Discovery,
}

/// The most bytes of an encoded instance.
pub const INSTANCE_BYTES_MAX: usize = 1100;

/// The group and port of RFC 6762.
pub const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 251), 5353);

impl Mdns {
    /// The network of the interface that has this address, or of the route to the group if it is
    /// [unspecified](Ipv4Addr::UNSPECIFIED). `group` is [`GROUP`] unless all of the fleet agree on another. Nothing is
    /// sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a group that is none of multicast.
    pub fn connect(group: SocketAddrV4, interface: Ipv4Addr, options: Options) -> Result<Mdns> {
        Mdns::connect_as(Style::Own, group, interface, options)
    }

    /// The same, with the records of somebody else. Those of rpcx's plug-in hold for all services of a process, have
    /// at most 255 bytes, and their clients do not ask which service an instance is of: a network has one.
    ///
    /// # Errors
    /// As [`connect`](Mdns::connect).
    pub fn connect_as(
        style: Style,
        group: SocketAddrV4,
        interface: Ipv4Addr,
        options: Options,
    ) -> Result<Mdns> {
        if !group.ip().is_multicast() {
            return Err(Status::invalid_argument(format!("mdns: {group} is no group of multicast")));
        }
        let link = Arc::new(Link::new(style, group, interface));
        let network = Network { name: format!("mdns {group}"), style, link };
        Ok(Mdns { discovery: Discovery::new(network, options) })
    }
}

impl Registry for Mdns {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// Answers to the first question are gathered for so long; responders wait for a part of it. What is in doubt is asked
/// anew after `confirm_after`, which has to be longer.
const FIRST: Duration = Duration::from_millis(350);
/// When it is asked again, from the beginning on: datagrams get lost.
const ASKED_AT: [Duration; 3] = [Duration::ZERO, Duration::from_millis(120), Duration::from_secs(1)];
/// And after that.
const ASK_EVERY: Duration = Duration::from_secs(20);

struct Network {
    name: String,
    style: Style,
    link: Arc<Link>,
}

impl Network {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let failed = |error: std::io::Error| {
            Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe)
        };
        let socket = self.link.open().map_err(failed)?;
        let began = Instant::now();
        let mut questions = ASKED_AT.iter();
        let mut ask_at = began;
        let mut publish_at = Some(began + FIRST);
        let mut known = Known::default();
        let mut datagram = vec![0; records::DATAGRAM_BYTES_MAX];
        loop {
            let next = [Some(ask_at), publish_at, known.ends()].into_iter().flatten().min().unwrap_or(ask_at);
            tokio::select! {
                received = socket.recv(&mut datagram) => {
                    let length = received.map_err(failed)?;
                    let bytes_max = feed.instance_bytes_max();
                    for told in records::read_answer(self.style, &datagram[..length], service, bytes_max) {
                        let now = Instant::now();
                        let news = known.take(told, now);
                        if let News::Doubted(until) = news {
                            ask_at = ask_at.min(until);
                        }
                        if news != News::None && publish_at.is_none() {
                            publish_at = Some(now + Duration::from_millis(20));
                        }
                    }
                    let max = feed.instances_max();
                    if known.instances().count() > max {
                        let text = format!("{}: there are more instances than instances_max {max}", self.name);
                        return Err(Status::resource_exhausted(text));
                    }
                }
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if ask_at <= now {
                        self.link.send(&socket, &records::question(self.style)).await.map_err(failed)?;
                        let _ = questions.next();
                        ask_at = questions.as_slice().first().map_or(now + ASK_EVERY, |at| began + *at);
                    }
                    let has_ended = known.expire(now);
                    let is_due = publish_at.is_some_and(|at| at <= now);
                    if is_due || (has_ended && publish_at.is_none()) {
                        publish_at = None;
                        feed.publish(known.instances().map(|instance| Ok(instance.clone())));
                    }
                }
            }
        }
    }
}

impl Backend for Network {
    fn name(&self) -> &str {
        &self.name
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let mut kept = Kept::new(self.link.clone(), &self.name, instance, ttl)?;
            kept.renew().await?;
            Ok(Box::new(kept) as Box<dyn Held>)
        })
    }
}
