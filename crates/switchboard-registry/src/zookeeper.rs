//! ZooKeeper: an ephemeral node for each instance, and a recursive watch of the service's folder.
//!
//! An ephemeral node lives as long as the session that made it. Watching and registering have sessions of their own,
//! so that the timeout of one is the TTL.

use crate::{
    entries::Entries,
    layout::{Layout, Style},
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use switchboard::{
    Result, Retry, Status,
    discover::{Backend, BoxFuture, Discovery, Feed, Held, Instance, Options, Registry},
};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType};

/// A registry in ZooKeeper, from version 3.6 on.
///
/// With the prefix `switchboard`, the instance `ID` of `SERVICE` is the node `/switchboard/SERVICE/ID`, both escaped.
/// Servers bound the TTL, by 2 and 20 of their ticks unless set otherwise. All that is registered through one
/// `ZooKeeper` shares a session, and so the TTL of the first.
pub struct ZooKeeper {
    discovery: Discovery,
}

impl ZooKeeper {
    /// The registry at `HOST:PORT`, of several servers with commas, with everything below `prefix`, `switchboard` if it
    /// is empty. Nothing is sent before it is used.
    pub fn connect(hosts: &str, prefix: &str, options: Options) -> ZooKeeper {
        ZooKeeper::connect_as(Style::Own, hosts, prefix, options)
    }

    /// The same, with the keys and values of somebody else.
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

/// Of the session that watches: a connection that is silent for two fifths of it is lost.
const WATCHING_FOR: Duration = Duration::from_secs(10);

/// Of one call.
const ANSWER: Duration = Duration::from_secs(5);

/// Changes that come together are published together.
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
    /// The session in `place`, or a new one.
    async fn session(&self, place: &Mutex<Option<Client>>, time: Duration) -> Result<Client> {
        let mut place = place.lock().await;
        if let Some(client) = place.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        // A session is not closed with its client: what it holds ends with its time, unless it is released.
        let connector = Client::connector().with_session_timeout(time).with_detached().with_fail_eagerly();
        let client = self.answer(connector.connect(&self.hosts)).await?;
        *place = Some(client.clone());
        Ok(client)
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T> {
        self.or_error(call).await?.map_err(|error| self.failed(&error))
    }

    /// For errors that mean something.
    async fn or_error<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<Result<T, Error>> {
        let slow = |_| Status::unavailable(format!("{} does not answer", self.name));
        timeout(ANSWER, call).await.map_err(slow)
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
        let mut events = shared.answer(client.watch(path, AddWatchMode::PersistentRecursive)).await?;
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
                    // Events may be lost while there is no connection: the list is read anew.
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

    async fn create(&self, client: &Client, path: &str, value: &[u8]) -> Result<()> {
        let (shared, acls) = (&self.shared, Acls::anyone_all());
        let options = CreateMode::Ephemeral.with_acls(acls);
        // Somebody may make or delete the node meanwhile, but not again and again.
        for _ in 0..5 {
            let call = match shared.or_error(client.create(path, value, &options)).await? {
                Err(Error::NoNode) => {
                    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                    shared.answer(client.mkdir(folder, &CreateMode::Persistent.with_acls(acls))).await?;
                    continue;
                }
                // Our own, whose value is another now, or of a session that has not ended yet: of this process before
                // its restart, say. In its place comes a new one, since rpcx's clients only hear of names that come
                // and go.
                Err(Error::NodeExists) => shared.or_error(replace(client, path, value, &options)).await?,
                call => call.map(drop),
            };
            match call {
                Ok(()) => return Ok(()),
                Err(Error::NoNode) => {}
                Err(error) => return Err(shared.failed(&error)),
            }
        }
        Err(Status::unavailable(format!("{}: others change {path} all the time", shared.name)))
    }
}

/// Deletes a node and makes another with its name, at once.
async fn replace(
    client: &Client,
    path: &str,
    value: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(), Error> {
    let mut both = client.new_multi_writer();
    both.add_delete(path, None)?;
    both.add_create(path, value, options)?;
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

    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>> {
        Box::pin(async move {
            let (path, value) = (self.layout.key(instance)?, self.layout.encode(instance)?);
            let client = self.shared.session(&self.shared.holding, ttl).await?;
            self.create(&client, &path, &value).await?;
            Ok(Box::new(Kept { shared: self.shared.clone(), client, path }) as Box<dyn Held>)
        })
    }
}

struct Kept {
    shared: Arc<Shared>,
    client: Client,
    path: String,
}

impl Held for Kept {
    /// The client keeps the session; this asks whether the node is still its own.
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let stat = self.shared.answer(self.client.check_stat(&self.path)).await?;
            if stat.is_some_and(|stat| stat.ephemeral_owner == self.client.session_id().0) {
                return Ok(());
            }
            Err(Status::not_found(format!("{} has lost {}", self.shared.name, self.path)))
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            match self.shared.or_error(self.client.delete(&self.path, None)).await? {
                Ok(()) | Err(Error::NoNode) => Ok(()),
                Err(error) => Err(self.shared.failed(&error)),
            }
        })
    }
}
