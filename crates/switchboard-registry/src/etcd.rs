//! etcd, version 3 of its API: keys with leases, and a watch from the revision of the list on.
//!
//! It uses our own gRPC client with a schema of the needed part of etcd's API: the etcd client crate brings a second
//! gRPC stack and builds only where `protoc` is installed.

/// Generated from `proto/etcd.proto`; a test of `switchboard-build` compares the file with it.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_imports,
    clippy::all,
    reason = "generated code is as public as a library would need it"
)]
mod api {
    include!("../generated/etcdserverpb.rs");
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
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
};
use tokio::time::{sleep, timeout};

/// A registry in etcd.
///
/// With the prefix `switchboard`, the instance `ID` of `SERVICE` is the key `/switchboard/SERVICE/ID`, both escaped.
/// Leases have whole seconds, and etcd accepts no lease shorter than two of its election timeouts, about 2 s.
pub struct Etcd {
    discovery: Discovery,
}

impl Etcd {
    /// Creates a client of the registry at an address as [`Channel::connect`] takes it, `tcp://127.0.0.1:2379` or
    /// `tls://etcd.example:2379?ca=ca.pem`, of several members with commas; below a prefix, `switchboard` if it is
    /// empty. Nothing is sent before it is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address.
    pub fn connect(url: &str, prefix: &str, options: Options) -> Result<Etcd> {
        Etcd::connect_as(Style::Own, url, prefix, options)
    }

    /// Creates a client as [`connect`](Etcd::connect) does, with the keys and values of the given layout.
    ///
    /// # Errors
    /// The errors of [`connect`](Etcd::connect).
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

/// A watch sends nothing for hours when nothing changes; after this time the client checks that the server still
/// responds.
const SILENCE: Duration = Duration::from_secs(5);

/// Time limit of one call that is not a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Values of one response. With 8 KiB each they fill half of the largest message.
const PAGE: i64 = 256;

/// Changes within this time are published together.
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
        let (request, mut responses) = self.watches.watch().await?;
        let create = WatchCreateRequest {
            key: folder.into(),
            range_end: end.into(),
            start_revision: revision + 1,
            progress_notify: true,
            ..Default::default()
        };
        let union = Some(RequestUnion::CreateRequest(Box::new(create)));
        request.send(WatchRequest { request_union: union, ..Default::default() }).await?;
        loop {
            let mut next = responses.next().await?;
            let gathered = sleep(GATHER);
            tokio::pin!(gathered);
            loop {
                let ended = || Status::unavailable(format!("{} ended the watch", self.name));
                let response = next.ok_or_else(ended)?;
                if response.canceled {
                    // The revision is compacted, or access is no longer allowed: the list is read again.
                    let text = format!("{} canceled the watch: {}", self.name, response.cancel_reason);
                    return Err(Status::unavailable(text));
                }
                for event in &response.events {
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
                    more = responses.next() => next = more?,
                }
            }
            entries.publish();
        }
    }

    /// Reads the folder in pages, all at one revision, and returns that revision.
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
            let page = self.kv.range(request).timeout(RESPONSE_TIMEOUT).await?;
            revision = page.header.revision;
            if revision == 0 {
                // Revisions of etcd begin with 1: this response does not come from etcd.
                let text = format!("{} sent a list without a revision: is it etcd?", self.name);
                return Err(Status::unavailable(text));
            }
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

/// Returns the first key after all keys that begin with `prefix`, which ends in `/`.
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

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let (key, value) = (self.layout.key(instance)?.into_bytes(), self.layout.encode(instance)?);
            let seconds = ttl.as_millis().div_ceil(1000).max(1) as i64;
            let request = LeaseGrantRequest { ttl: seconds, ..Default::default() };
            let lease = self.leases.lease_grant(request).timeout(RESPONSE_TIMEOUT).await?.id;
            // A previous lease of the key no longer owns it, and expires.
            let request =
                PutRequest { key: key.clone().into(), value: value.into(), lease, ..Default::default() };
            self.kv.put(request).timeout(RESPONSE_TIMEOUT).await?;
            let (leases, kv) = (self.leases.clone(), self.kv.clone());
            Ok(Box::new(EtcdRegistration { leases, kv, key, lease }) as Box<dyn Registration>)
        })
    }
}

struct EtcdRegistration {
    leases: LeaseClient,
    kv: KVClient,
    key: Vec<u8>,
    lease: i64,
}

impl Registration for EtcdRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let (request, mut responses) = self.leases.lease_keep_alive().timeout(RESPONSE_TIMEOUT).await?;
            request.send(LeaseKeepAliveRequest { id: self.lease, ..Default::default() }).await?;
            let response = timeout(RESPONSE_TIMEOUT, responses.next()).await;
            let response = response.map_err(|_| Status::unavailable("etcd does not respond"))??;
            match response {
                Some(response) if response.ttl > 0 => Ok(()),
                _ => Err(Status::not_found("etcd does not have the lease any more")),
            }
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let request = LeaseRevokeRequest { id: self.lease, ..Default::default() };
            match self.leases.lease_revoke(request).timeout(RESPONSE_TIMEOUT).await {
                Err(error) if error.code() != switchboard::Code::NotFound => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// The end of the lease deletes only keys that it still owns; this is for replacing.
    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let request = RangeRequest { key: self.key.clone().into(), ..Default::default() };
            let found = self.kv.range(request).timeout(RESPONSE_TIMEOUT).await?;
            Ok(found.kvs.first().is_some_and(|pair| pair.lease != self.lease))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("etcd", &["layout"]), ("etcds", &["ca", "cert", "key", "layout", "server_name"])],
    make: |parsed| {
        let mut url =
            format!("{}://{}", if parsed.scheme == "etcds" { "tls" } else { "tcp" }, parsed.hosts()?);
        let mut separator = '?';
        for name in ["ca", "cert", "key", "server_name"] {
            if let Some(value) = parsed.take(name) {
                url.push_str(&format!("{separator}{name}={value}"));
                separator = '&';
            }
        }
        let (prefix, style, options) = (parsed.path, parsed.style()?, parsed.options()?);
        Ok(std::sync::Arc::new(crate::Etcd::connect_as(style, &url, prefix, options)?))
    },
};
