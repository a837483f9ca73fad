//! mDNS: servers announce themselves by multicast on the local network (RFC 6762), in DNS-SD records (RFC 6763). There
//! is no server that could fail, and no authority that checks the announcements.

mod cache;
mod records;
mod responder;
mod rpcx;

use crate::layout::Style;
use cache::{InstanceCache, News};
use responder::{Link, MdnsRegistration};
use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
};
use tokio::time::{Instant, sleep_until};

/// A registry without a server: its instances are on the same network.
///
/// Instances have the type `_switchboard._tcp.local.`, so that other browsers show them, and are announced to one IPv4
/// group. A registration is announced again with each renewal. It expires after its TTL, in whole seconds, or ends with
/// a goodbye announcement. An encoded instance must fit into one datagram, [`INSTANCE_BYTES_MAX`]. Every host that can
/// send to the group can announce any instance: use mDNS only on a network of trusted machines. `confirm_after` must be
/// zero or at least one second.
pub struct Mdns {
    discovery: Discovery,
}

/// Most bytes of an encoded instance.
pub const INSTANCE_BYTES_MAX: usize = 1100;

/// The group and port of RFC 6762.
pub const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 251), 5353);

impl Mdns {
    /// Creates a registry on the network of the interface that has this address, or of the route to the group if it is
    /// [unspecified](Ipv4Addr::UNSPECIFIED). `group` is [`GROUP`] unless the whole fleet uses another. Nothing is sent
    /// before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a group that is not a multicast address.
    pub fn connect(group: SocketAddrV4, interface: Ipv4Addr, options: Options) -> Result<Mdns> {
        Mdns::connect_as(Style::Own, group, interface, options)
    }

    /// Creates a registry as [`connect`](Mdns::connect) does, with the records of the given layout. A record of rpcx's
    /// plug-in describes all services of a process and has at most 255 bytes. rpcx clients do not check which service
    /// an instance belongs to: a network can have only one.
    ///
    /// # Errors
    /// The errors of [`connect`](Mdns::connect).
    pub fn connect_as(
        style: Style,
        group: SocketAddrV4,
        interface: Ipv4Addr,
        options: Options,
    ) -> Result<Mdns> {
        if !group.ip().is_multicast() {
            return Err(Status::invalid_argument(format!("mdns: {group} is not a multicast group")));
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

/// Time for which responses to the first query are collected; responders wait for a part of it. An instance in doubt is
/// queried again after `confirm_after`, which must be longer.
const FIRST: Duration = Duration::from_millis(350);
/// Times of the first queries: they are repeated because datagrams get lost.
const QUERY_AT: [Duration; 3] = [Duration::ZERO, Duration::from_millis(120), Duration::from_secs(1)];
/// Interval of the queries after that.
const QUERY_EVERY: Duration = Duration::from_secs(20);

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
        let mut queries = QUERY_AT.iter();
        let mut query_at = began;
        let mut publish_at = Some(began + FIRST);
        let mut cache = InstanceCache::default();
        let mut datagram = vec![0; records::DATAGRAM_BYTES_MAX];
        loop {
            let next =
                [Some(query_at), publish_at, cache.ends()].into_iter().flatten().min().unwrap_or(query_at);
            tokio::select! {
                received = socket.recv(&mut datagram) => {
                    let length = received.map_err(failed)?;
                    let bytes_max = feed.instance_bytes_max();
                    let datagram = &datagram[..length];
                    for announcement in records::read_announcements(self.style, datagram, service, bytes_max) {
                        let now = Instant::now();
                        let news = cache.take(announcement, now);
                        if let News::Doubted(until) = news {
                            query_at = query_at.min(until);
                        }
                        if news != News::None && publish_at.is_none() {
                            publish_at = Some(now + Duration::from_millis(20));
                        }
                    }
                    let max = feed.instances_max();
                    if cache.instances().count() > max {
                        let text = format!("{}: more instances than instances_max {max}", self.name);
                        return Err(Status::resource_exhausted(text));
                    }
                }
                () = sleep_until(next) => {
                    let now = Instant::now();
                    if query_at <= now {
                        self.link.send(&socket, &records::query(self.style)).await.map_err(failed)?;
                        let _ = queries.next();
                        query_at = queries.as_slice().first().map_or(now + QUERY_EVERY, |at| began + *at);
                    }
                    let has_ended = cache.expire(now);
                    let is_due = publish_at.is_some_and(|at| at <= now);
                    if is_due || (has_ended && publish_at.is_none()) {
                        publish_at = None;
                        feed.publish(cache.instances().map(|instance| Ok(instance.clone())));
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let mut registration = MdnsRegistration::new(self.link.clone(), &self.name, instance, ttl)?;
            registration.renew().await?;
            Ok(Box::new(registration) as Box<dyn Registration>)
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("mdns", &["interface", "layout"])],
    make: |parsed| {
        let wrong = |what| crate::address::wrong(parsed.url, what);
        let group = match parsed.hosts {
            "" => GROUP,
            group => group.parse().map_err(|_| wrong("the group is not ADDRESS:PORT of IPv4"))?,
        };
        let interface = match parsed.take("interface") {
            None => std::net::Ipv4Addr::UNSPECIFIED,
            Some(address) => address
                .parse()
                .map_err(|_| wrong("the interface is not an IPv4 address; write interface=ADDRESS"))?,
        };
        let style = parsed.style()?;
        Ok(std::sync::Arc::new(crate::Mdns::connect_as(style, group, interface, parsed.options()?)?))
    },
};
