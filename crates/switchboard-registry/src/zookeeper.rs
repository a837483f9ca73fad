//! ZooKeeper: an ephemeral node for each instance, and a recursive watch of the service's folder.
//!
//! An ephemeral node lives as long as the session that created it. Watching and registering use separate sessions, so
//! that the timeout of the latter is the TTL.

use crate::{
    entries::Entries,
    layout::{Layout, Style},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry},
};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType};

/// A registry in ZooKeeper, from version 3.6 on.
///
/// With the prefix `switchboard`, the instance `ID` of `SERVICE` is the node `/switchboard/SERVICE/ID`, both escaped.
/// Servers bound the TTL, by default between 2 and 20 of their ticks. All instances that are registered through one
/// `ZooKeeper` share a session, and therefore the TTL of the first.
pub struct ZooKeeper {
    discovery: Discovery,
}

impl ZooKeeper {
    /// Creates a client of the registry at `HOST:PORT`, of several servers with commas, with everything below `prefix`,
    /// `switchboard` if it is empty. Nothing is sent before it is used.
    pub fn connect(hosts: &str, prefix: &str, options: Options) -> ZooKeeper {
        ZooKeeper::connect_as(Style::Own, hosts, prefix, options)
    }

    /// Creates a client as [`connect`](ZooKeeper::connect) does, with the keys and values of the given layout.
    pub fn connect_as(style: Style, hosts: &str, prefix: &str, options: Options) -> ZooKeeper {
        let shared = Shared {
            name: format!("zookeeper {hosts}"),
            hosts: hosts.to_owned(),
            watching: Mutex::default(),
            holding: Mutex::default(),
        };
        let store =
            Store { layout: style.layout(prefix.trim_start_matches('/'), "/"), shared: Arc::new(shared) };
        ZooKeeper { discovery: Discovery::new(store, options) }
    }
}

impl Registry for ZooKeeper {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// Timeout of the session that watches: a connection that is silent for two fifths of it is lost.
const WATCHING_FOR: Duration = Duration::from_secs(10);

/// Time limit of one call.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Changes within this time are published together.
const GATHER: Duration = Duration::from_millis(20);

struct Store {
    layout: Box<dyn Layout>,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    hosts: String,
    watching: Mutex<Option<Client>>,
    holding: Mutex<Option<Client>>,
}

impl Shared {
    /// Returns the session in `place`, or a new one.
    async fn session(&self, place: &Mutex<Option<Client>>, time: Duration) -> Result<Client> {
        let mut place = place.lock().await;
        if let Some(client) = place.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        // A session is not closed with its client: its nodes expire with its timeout, unless they are released.
        let connector = Client::connector().with_session_timeout(time).with_detached().with_fail_eagerly();
        let client = self.response(connector.connect(&self.hosts)).await?;
        *place = Some(client.clone());
        Ok(client)
    }

    async fn response<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T> {
        self.or_error(call).await?.map_err(|error| self.failed(&error))
    }

    /// Returns the errors of the call separately, for callers that handle them.
    async fn or_error<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<Result<T, Error>> {
        let slow = |_| Status::unavailable(format!("{} does not respond", self.name));
        timeout(RESPONSE_TIMEOUT, call).await.map_err(slow)
    }

    fn failed(&self, error: &Error) -> Status {
        Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe)
    }
}

impl Store {
    async fn follow_on(&self, service: &str, feed: &Feed) -> Result<Infallible> {
        let shared = &self.shared;
        let folder = self.layout.folder(service);
        let path = folder.trim_end_matches('/');
        let client = shared.session(&shared.watching, WATCHING_FOR).await?;
        // Before the list, so that no change is missed.
        let mut events = shared.response(client.watch(path, AddWatchMode::PersistentRecursive)).await?;
        let mut entries = Entries::new(&*self.layout, service, feed);
        match shared.or_error(client.list_children(path)).await? {
            Ok(names) => {
                for name in names.into_iter().filter(|name| self.layout.is_name(name)) {
                    self.read(&client, &folder, &name, &mut entries).await?;
                }
            }
            Err(Error::NoNode) => {}
            Err(error) => return Err(shared.failed(&error)),
        }
        entries.publish();
        loop {
            let mut event = events.changed().await;
            let gathered = sleep(GATHER);
            tokio::pin!(gathered);
            loop {
                if event.event_type == EventType::Session {
                    // Events may be lost while there is no connection: the list is read again.
                    let text = format!("{}: the connection is {}", shared.name, event.session_state);
                    return Err(Status::unavailable(text));
                }
                if let Some(name) = entries.name(&event.path).map(str::to_owned) {
                    self.read(&client, &folder, &name, &mut entries).await?;
                }
                tokio::select! {
                    biased;
                    () = &mut gathered => break,
                    more = events.changed() => event = more,
                }
            }
            entries.publish();
        }
    }

    async fn read(&self, client: &Client, folder: &str, name: &str, entries: &mut Entries<'_>) -> Result<()> {
        match self.shared.or_error(client.get_data(&format!("{folder}{name}"))).await? {
            Ok((value, _)) => entries.put(name, &value),
            Err(Error::NoNode) => {
                entries.remove(name);
                Ok(())
            }
            Err(error) => Err(self.shared.failed(&error)),
        }
    }

    /// Creates the node and returns the transaction that created it, which no other node has.
    async fn create(&self, client: &Client, path: &str, value: &[u8]) -> Result<i64> {
        let (shared, acls) = (&self.shared, Acls::anyone_all());
        let options = CreateMode::Ephemeral.with_acls(acls);
        // Another program may create or delete the node meanwhile, but not repeatedly.
        for _ in 0..5 {
            let call = match shared.or_error(client.create(path, value, &options)).await? {
                Err(Error::NoNode) => {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    shared.response(client.mkdir(folder, &CreateMode::Persistent.with_acls(acls))).await?;
                    continue;
                }
                // The node is our own with another value now, or belongs to a session that has not ended yet, for
                // example of this process before its restart. A new node replaces it, since rpcx clients are notified
                // only of names that are created and deleted.
                Err(Error::NodeExists) => shared.or_error(replace(client, path, value, &options)).await?,
                call => call.map(drop),
            };
            match call {
                Ok(()) => {}
                // It has changed since it was read.
                Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => continue,
                Err(error) => return Err(shared.failed(&error)),
            }
            let stat = shared.response(client.check_stat(path)).await?;
            if let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0) {
                return Ok(stat.czxid);
            }
        }
        Err(Status::unavailable(format!("{}: other programs keep changing {path}", shared.name)))
    }
}

/// Deletes a node and creates another with its name, in one transaction. The new one never has the version of the old
/// one, so a [release](ZooKeeperRegistration::release) of the old one, which deletes by version, does not delete it.
async fn replace(
    client: &Client,
    path: &str,
    value: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(), Error> {
    let before = client.check_stat(path).await?.ok_or(Error::NoNode)?;
    let mut both = client.new_multi_writer();
    both.add_delete(path, Some(before.version))?;
    both.add_create(path, value, options)?;
    if before.version == 0 {
        both.add_set_data(path, value, Some(0))?;
    }
    both.commit().await?;
    Ok(())
}

impl Backend for Store {
    fn name(&self) -> &str {
        &self.shared.name
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
            let (path, value) = (self.layout.key(instance)?, self.layout.encode(instance)?);
            let client = self.shared.session(&self.shared.holding, ttl).await?;
            let made_by = self.create(&client, &path, &value).await?;
            Ok(Box::new(ZooKeeperRegistration { shared: self.shared.clone(), client, path, made_by })
                as Box<dyn Registration>)
        })
    }
}

struct ZooKeeperRegistration {
    shared: Arc<Shared>,
    client: Client,
    path: String,
    /// The transaction that created the node.
    made_by: i64,
}

impl Registration for ZooKeeperRegistration {
    /// The client keeps the session alive; this checks whether the node still belongs to it.
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let stat = self.shared.response(self.client.check_stat(&self.path)).await?;
            if stat.is_some_and(|stat| stat.czxid == self.made_by) {
                return Ok(());
            }
            Err(Status::not_found(format!("{} has lost {}", self.shared.name, self.path)))
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let stat = self.shared.response(self.client.check_stat(&self.path)).await?;
            let Some(stat) = stat.filter(|stat| stat.czxid == self.made_by) else { return Ok(()) };
            match self.shared.or_error(self.client.delete(&self.path, Some(stat.version))).await? {
                Ok(()) | Err(Error::BadVersion | Error::NoNode) => Ok(()),
                Err(error) => Err(self.shared.failed(&error)),
            }
        })
    }

    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            let stat = self.shared.response(self.client.check_stat(&self.path)).await?;
            Ok(stat.is_some_and(|stat| stat.czxid != self.made_by))
        })
    }
}

/// How an address of this kind becomes a registry.
pub(crate) const ADDRESS: crate::address::Constructor = crate::address::Constructor {
    schemes: &[("zookeeper", &["layout"])],
    make: |parsed| {
        let (hosts, prefix, style) = (parsed.hosts()?, parsed.path, parsed.style()?);
        Ok(std::sync::Arc::new(crate::ZooKeeper::connect_as(style, hosts, prefix, parsed.options()?)))
    },
};
