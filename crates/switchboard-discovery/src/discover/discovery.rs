//! The rules of every registry, around a back end that stores the instances.

use super::{
    BoxFuture, Instance, Lease, Options, Registry, Snapshot, SnapshotSource, Watch, WatchState, cache, lease,
    settle::Settle,
};
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Waker},
    time::Duration,
};
use switchboard_core::{Result, backoff};
use switchboard_wire::{Code, Status};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, sleep_until},
};

/// Storage of instances: the part that each kind of registry implements. [`Discovery`] does the rest.
pub trait Backend: Send + Sync + 'static {
    /// Name for messages, such as `etcd 127.0.0.1:2379`.
    fn name(&self) -> &str;

    /// Reads a service from scratch and follows it: every whole list goes to [`Feed::publish`]. The future is dropped
    /// when the last watch is dropped, or to call this method again. An implementation need not limit the number of
    /// instances, but must limit the bytes of a response that it buffers.
    ///
    /// # Errors
    /// The reason why it cannot continue. The future has no other end; it is called again after a pause.
    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>>;

    /// Returns true when the back end may lose registrations while it is unreachable, until they are renewed. Back ends
    /// with persistent storage, such as DNS records and files, return false.
    fn may_lose_registrations(&self) -> bool {
        true
    }

    /// Stores `instance` for at least `ttl` from now, in place of one with the same service and id. It may be called
    /// again for a stored one after a failed renewal.
    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>>;
}

/// A registration in a [`Backend`]. Dropping it leaves the registration until its TTL ends.
pub trait Registration: Send + Sync {
    /// Extends the registration by another `ttl`. After an error, [`Backend::register`] is called again, so it need not
    /// repair anything.
    fn renew(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Removes the registration now, unless [a newer one](Self::is_superseded) has replaced it. Where the registry can
    /// compare and delete atomically, the implementation does so.
    fn release(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Returns true when a newer registration with the same service and id has replaced this one. It is called before
    /// each replacement and release; a newer registration is neither replaced nor released.
    fn is_superseded(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
}

/// A registry: a back end with the common rules.
pub struct Discovery {
    backend: Arc<dyn Backend>,
    options: Options,
    /// Each service is followed once, also when several watches use it.
    followed: Mutex<HashMap<String, Weak<Following>>>,
}

impl Discovery {
    /// Creates a registry of this back end.
    pub fn new(backend: impl Backend, options: Options) -> Discovery {
        Discovery { backend: Arc::new(backend), options, followed: Mutex::default() }
    }

    /// The options of this registry.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn follow(&self, service: &str) -> Arc<Following> {
        let feed = Arc::new(Feed::new(self.backend.name(), service, self.options.clone()));
        let mut driving = Box::pin(drive(self.backend.clone(), feed.clone()));
        // A source that needs no waiting, like a list or a file, publishes before the watch is returned. The task polls
        // the future again, so the no-op waker loses nothing.
        let _ = driving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let task = switchboard_core::runtime::spawn(driving).abort_handle();
        Arc::new(Following { feed, task })
    }

    pub(super) fn backend_name(&self) -> &str {
        self.backend.name()
    }

    pub(super) fn watch_service(&self, service: &str) -> Watch {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let following = followed.get(service).and_then(Weak::upgrade);
        // The task ends with its runtime, which may be before the end of the registry.
        let following = following.filter(|following| !following.task.is_finished());
        let following = following.unwrap_or_else(|| {
            followed.retain(|_, following| following.strong_count() > 0);
            let following = self.follow(service);
            followed.insert(service.to_owned(), Arc::downgrade(&following));
            following
        });
        let mut snapshots = following.feed.snapshots.subscribe();
        if following.state().source != SnapshotSource::None {
            snapshots.mark_changed();
        }
        Watch { following, snapshots }
    }

    pub(super) async fn register_instance(&self, instance: Instance) -> Result<Lease> {
        instance.encode(self.options.instance_bytes_max)?;
        lease::register(self.backend.clone(), instance, &self.options).await
    }
}

impl Registry for Discovery {
    fn discovery(&self) -> &Discovery {
        self
    }
}

/// State that the watches of one service share.
pub(super) struct Following {
    feed: Arc<Feed>,
    task: AbortHandle,
}

impl Following {
    pub(super) fn service(&self) -> &str {
        &self.feed.service
    }

    pub(super) fn registry(&self) -> &str {
        &self.feed.registry
    }

    pub(super) fn confirm_gone(&self, id: &str) {
        let mut inner = self.feed.lock();
        if let Some(snapshot) = inner.settle.confirm_gone(id, Instant::now()) {
            tracing::info!(service = %self.feed.service, id, "instance removed: a connection to it failed");
            self.feed.send(&mut inner, snapshot);
        }
    }

    pub(super) fn confirm_back(&self, id: &str) {
        self.feed.lock().settle.confirm_back(id);
    }

    pub(super) fn state(&self) -> WatchState {
        self.feed.lock().state.clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Receives the lists that a [`Backend`] reads for one service.
pub struct Feed {
    registry: String,
    service: String,
    options: Options,
    snapshots: watch::Sender<Arc<Snapshot>>,
    inner: Mutex<Inner>,
    /// Notified after each published list.
    published: Notify,
    /// Notified when [`Backend::follow`] has ended with an error.
    failed: Notify,
}

struct Inner {
    settle: Settle,
    state: WatchState,
    /// Number of accepted lists.
    lists: u64,
    /// True once a snapshot was sent to the watches; an empty first list is sent too.
    sent: bool,
}

impl Feed {
    fn new(registry: &str, service: &str, options: Options) -> Feed {
        let settle = Settle::new(options.confirm_after);
        Feed {
            registry: registry.to_owned(),
            service: service.to_owned(),
            options,
            snapshots: watch::Sender::default(),
            inner: Mutex::new(Inner { settle, state: WatchState::default(), lists: 0, sent: false }),
            published: Notify::new(),
            failed: Notify::new(),
        }
    }

    /// Maximum number of bytes of an encoded instance, for [`Instance::decode`].
    pub fn instance_bytes_max(&self) -> usize {
        self.options.instance_bytes_max
    }

    /// Maximum number of instances of a list. An implementation may stop reading after one more.
    pub fn instances_max(&self) -> usize {
        self.options.instances_max
    }

    /// Maximum number of bytes of a response with a whole list: twice the limits of the instances, because a registry
    /// adds names of its own, and at most 256 MiB.
    pub fn answer_bytes_max(&self) -> usize {
        let ours = self.options.instances_max.saturating_mul(self.options.instance_bytes_max);
        ours.saturating_mul(2).min(256 << 20)
    }

    /// Publishes the registry's whole list as it is now. Instances of other services are skipped, and so are invalid
    /// ones, with a warning. A list over [`instances_max`](Self::instances_max) is rejected: the last good list stays.
    pub fn publish(&self, instances: impl IntoIterator<Item = Result<Instance>>) {
        let (mut good, mut bad) = (Vec::new(), None);
        for instance in instances {
            match instance.and_then(|instance| instance.check().map(|()| instance)) {
                Ok(instance) if instance.service == self.service => good.push(instance),
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
            if good.len() > self.options.instances_max {
                return self.fail(Status::new(
                    Code::ResourceExhausted,
                    format!(
                        "{} has more instances of {} than instances_max {}: the last good list stays",
                        self.registry, self.service, self.options.instances_max
                    ),
                ));
            }
        }
        let mut inner = self.lock();
        inner.lists += 1;
        inner.state.source = SnapshotSource::Registry;
        self.set_error(&mut inner, bad);
        let held_before = inner.settle.held_back().count();
        let snapshot = inner.settle.offer(Snapshot::new(good), Instant::now());
        let held = inner.settle.held_back().count();
        if held > held_before {
            tracing::warn!(
                registry = self.registry,
                service = self.service,
                held,
                "more than half of the instances vanished at once: kept until confirmed"
            );
        }
        self.send(&mut inner, snapshot);
        drop(inner);
        self.published.notify_one();
    }

    /// Reports an error without ending [`Backend::follow`]; the last good list stays.
    pub fn fail(&self, why: Status) {
        let mut inner = self.lock();
        self.set_error(&mut inner, Some(why));
    }

    /// Sets the error of the watch state and logs it when it changes, not with every retry.
    fn set_error(&self, inner: &mut Inner, error: Option<Status>) {
        match (&inner.state.error, &error) {
            (Some(before), Some(now)) if before.message() == now.message() => {}
            (_, Some(now)) => tracing::warn!(
                registry = self.registry,
                service = self.service,
                error = %now,
                "discovery failed: keeping the last snapshot"
            ),
            (Some(_), None) => {
                tracing::info!(
                    registry = self.registry,
                    service = self.service,
                    "the registry responds again"
                );
            }
            (None, None) => {}
        }
        inner.state.error = error;
    }

    /// Publishes the cached snapshot, if the registry has not responded yet.
    fn publish_cached(&self, snapshot: Snapshot) {
        let mut inner = self.lock();
        if inner.state.source == SnapshotSource::None {
            inner.state.source = SnapshotSource::Disk;
            let snapshot = inner.settle.offer(snapshot, Instant::now());
            self.send(&mut inner, snapshot);
        }
    }

    fn send(&self, inner: &mut Inner, snapshot: Snapshot) {
        inner.state.held_back = inner.settle.held_back().map(str::to_owned).collect();
        let first = !std::mem::replace(&mut inner.sent, true);
        self.snapshots.send_if_modified(|last| {
            let changed = first || **last != snapshot;
            if changed {
                *last = Arc::new(snapshot);
            }
            changed
        });
    }

    fn lists(&self) -> u64 {
        self.lock().lists
    }

    /// Completes when the service must be read from scratch, because instances are held back.
    async fn reread_due(&self, last_reread: Option<Instant>) {
        let pause = self.options.confirm_after;
        loop {
            let due = self.lock().settle.due();
            match due.max(
                due.and(
                    last_reread.map(|last_reread| {
                        switchboard_core::clock::after(last_reread.into_std(), pause).into()
                    }),
                ),
            ) {
                Some(at) => tokio::select! {
                    () = sleep_until(at) => return,
                    () = self.published.notified() => {}
                },
                None => self.published.notified().await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A follow that lasts this long after a list resets the backoff: the next pause is short.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Time after which a registry that has not responded is treated as down at startup, so that the cache is read.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(1);

/// Follows a service until the task is aborted, when the last watch is dropped.
async fn drive(backend: Arc<dyn Backend>, feed: Arc<Feed>) {
    tokio::join!(follow_with_backoff(&*backend, &feed), maintain_cache(&feed));
}

async fn follow_with_backoff(backend: &dyn Backend, feed: &Feed) {
    let (mut failures, mut last_reread) = (0, None);
    loop {
        let (lists, started) = (feed.lists(), Instant::now());
        let Err(why) = tokio::select! {
            ended = backend.follow(&feed.service, feed) => ended,
            () = feed.reread_due(last_reread) => {
                last_reread = Some(Instant::now());
                continue;
            }
        };
        feed.fail(why);
        if backend.may_lose_registrations() {
            feed.lock().settle.registry_failed();
        }
        feed.failed.notify_one();
        let was_stable = feed.lists() > lists && started.elapsed() >= STABLE_AFTER;
        failures = if was_stable { 1 } else { failures + 1 };
        sleep(backoff::pause(failures, backoff::CONNECT_MIN, feed.options.retry_max)).await;
    }
}

/// Reads the last snapshot from the disk if the registry does not respond, and writes each snapshot of the registry.
async fn maintain_cache(feed: &Feed) {
    let Some(folder) = &feed.options.cache else { return };
    let cache = cache::Cache::new(folder, &feed.service, &feed.options);
    let mut snapshots = feed.snapshots.subscribe();
    tokio::select! {
        _ = snapshots.changed() => {}
        () = feed.failed.notified() => {}
        () = sleep(STARTUP_TIMEOUT) => {}
    }
    if feed.lock().state.source == SnapshotSource::None
        && let Some(snapshot) = cache.read().await
    {
        feed.publish_cached(snapshot);
    }
    let mut written = None;
    loop {
        let latest = snapshots.borrow_and_update().clone();
        let is_new = written.as_ref() != Some(&latest);
        if is_new && feed.lock().state.source == SnapshotSource::Registry {
            cache.write(latest.clone()).await;
            written = Some(latest);
        }
        // `changed` cannot fail: the sender is in the feed.
        let _ = snapshots.changed().await;
    }
}
