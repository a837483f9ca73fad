//! etcd, version 3 of its API: keys with leases, and a watch from the moment of the list on.
//!
//! It is spoken to with our own gRPC client, whose schema is the part of etcd's that is needed here: the client crate
//! for etcd brings a second gRPC stack and builds only where `protoc` is installed.

/// Generated from `etcd.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_imports,
    clippy::all,
    reason = "generated code is as public as a library would need it"
)]
mod api {
    switchboard::include_proto!("etcdserverpb");
}

use crate::{
    entries::Entries,
    layout::{Layout, Style},
};
use api::{
    KVClient, LeaseClient, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, WatchClient, WatchCreateRequest, WatchRequest, event::EventType,
    watch_request::RequestUnion,
};
use std::{convert::Infallible, time::Duration};
use switchboard::{
    Channel, Result, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::time::{sleep, timeout};

/// A registry in etcd.
///
/// With the prefix `switchboard`, the instance `ID` of `SERVICE` is the key `/switchboard/SERVICE/ID`, both escaped.
/// Leases have whole seconds, and etcd takes none that are shorter than two of its elections, some 2 s.
pub struct Etcd {
    discovery: Discovery,
}

impl Etcd {
    /// The registry at an address as [`Channel::connect`] takes it, `tcp://127.0.0.1:2379` or
    /// `tls://etcd.example:2379?ca=ca.pem`, of several members with commas; below a prefix, `switchboard` if it is
    /// empty. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong address.
    pub fn connect(url: &str, prefix: &str, options: Options) -> Result<Etcd> {
        Etcd::connect_as(Style::Own, url, prefix, options)
    }

    /// The same, with the keys and values of somebody else.
    ///
    /// # Errors
    /// As [`connect`](Etcd::connect).
    pub fn connect_as(style: Style, url: &str, prefix: &str, options: Options) -> Result<Etcd> {
        let address = url.split_once('?').map_or(url, |(address, _)| address);
        let name = format!("etcd {}", address.split_once("://").map_or(address, |(_, hosts)| hosts));
        let separator = if url.contains('?') { '&' } else { '?' };
        let channel = Channel::builder(&format!("{url}{separator}wire=grpc"))
            .connections(1)
            .keepalive(SILENCE)
            .backoff_max(Duration::from_secs(1))
            .lazy()?;
        let store = Store {
            name,
            layout: style.layout(prefix, ""),
            kv: KVClient::new(channel.clone()),
            leases: LeaseClient::new(channel.clone()),
            watches: WatchClient::new(channel),
        };
        Ok(Etcd { discovery: Discovery::new(store, options) })
    }
}

impl Registry for Etcd {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// A watch is silent for hours when nothing happens; after this time we ask whether the server is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// Of one call that is not a watch.
const ANSWER: Duration = Duration::from_secs(5);

/// Values of one answer. With 8 KiB each it is half of what a message may have.
const PAGE: i64 = 256;

/// Changes that come together are published together.
const GATHER: Duration = Duration::from_millis(20);

struct Store {
    name: String,
    layout: Box<dyn Layout>,
    kv: KVClient,
    leases: LeaseClient,
    watches: WatchClient,
}

impl Store {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let folder = self.layout.folder(service).into_bytes();
        let end = after(&folder);
        let mut entries = Entries::new(&*self.layout, service, feed);
        let revision = self.list(&folder, &end, &mut entries).await?;
        entries.publish();
        let (ask, mut answers) = self.watches.watch().await?;
        let create = WatchCreateRequest {
            key: folder.into(),
            range_end: end.into(),
            start_revision: revision + 1,
            progress_notify: true,
            ..Default::default()
        };
        let union = Some(RequestUnion::CreateRequest(Box::new(create)));
        ask.send(WatchRequest { request_union: union, ..Default::default() }).await?;
        loop {
            let mut next = answers.next().await?;
            let gathered = sleep(GATHER);
            tokio::pin!(gathered);
            loop {
                let ended = || Status::unavailable(format!("{} has ended the watch", self.name));
                let answer = next.ok_or_else(ended)?;
                if answer.canceled {
                    // Compacted, or no longer allowed: the list is read anew.
                    let text = format!("{} has canceled the watch: {}", self.name, answer.cancel_reason);
                    return Err(Status::unavailable(text));
                }
                for event in &answer.events {
                    let key = String::from_utf8_lossy(&event.kv.key);
                    let Some(name) = entries.name(&key) else { continue };
                    if event.r#type == EventType::DELETE {
                        entries.remove(name);
                    } else {
                        entries.put(name, &event.kv.value)?;
                    }
                }
                tokio::select! {
                    biased;
                    () = &mut gathered => break,
                    more = answers.next() => next = more?,
                }
            }
            entries.publish();
        }
    }

    /// Reads the folder in pages, all as of one moment, and returns that.
    async fn list(&self, folder: &[u8], end: &[u8], entries: &mut Entries<'_>) -> Result<i64> {
        let (mut key, mut revision) = (folder.to_vec(), 0);
        loop {
            let request = RangeRequest {
                key: key.into(),
                range_end: end.to_vec().into(),
                limit: PAGE,
                revision,
                ..Default::default()
            };
            let page = self.kv.range(request).timeout(ANSWER).await?;
            revision = page.header.revision;
            for pair in &page.kvs {
                let key = String::from_utf8_lossy(&pair.key);
                if let Some(name) = entries.name(&key) {
                    entries.put(name, &pair.value)?;
                }
            }
            match page.kvs.last() {
                Some(last) if page.more => key = [&last.key[..], &[0]].concat(),
                _ => return Ok(revision),
            }
        }
    }
}

/// The first key after all that begin with `prefix`, which ends in `/`.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl Backend for Store {
    fn name(&self) -> &str {
        &self.name
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(self.follow_on(service, feed))
    }

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let (key, value) = (self.layout.key(instance)?.into_bytes(), self.layout.encode(instance)?);
            let seconds = ttl.as_millis().div_ceil(1000).max(1) as i64;
            let request = LeaseGrantRequest { ttl: seconds, ..Default::default() };
            let lease = self.leases.lease_grant(request).timeout(ANSWER).await?.id;
            // A lease of before that it had is no longer its own, and ends with its time.
            let request = PutRequest { key: key.into(), value: value.into(), lease, ..Default::default() };
            self.kv.put(request).timeout(ANSWER).await?;
            Ok(Box::new(Kept { leases: self.leases.clone(), lease }) as Box<dyn Held>)
        })
    }
}

struct Kept {
    leases: LeaseClient,
    lease: i64,
}

impl Held for Kept {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let (ask, mut answers) = self.leases.lease_keep_alive().timeout(ANSWER).await?;
            ask.send(LeaseKeepAliveRequest { id: self.lease, ..Default::default() }).await?;
            let answer = timeout(ANSWER, answers.next()).await;
            let answer = answer.map_err(|_| Status::unavailable("etcd does not answer"))??;
            match answer {
                Some(answer) if answer.ttl > 0 => Ok(()),
                _ => Err(Status::not_found("etcd has forgotten the lease")),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let request = LeaseRevokeRequest { id: self.lease, ..Default::default() };
            match self.leases.lease_revoke(request).timeout(ANSWER).await {
                Err(error) if error.code() != switchboard::Code::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }
}
