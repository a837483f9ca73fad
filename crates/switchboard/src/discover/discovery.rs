//! The rules of every registry, around a back end that knows where instances are kept.

use super::{
    BoxFuture, Instance, Known, Lease, Options, Registry, Snapshot, Watch, WatchState, cache, lease,
    settle::Settle,
};
use crate::{Code, Result, Status, client};
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Waker},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, sleep_until},
};

/// A place where instances are kept: what a new registry has to bring. [`Discovery`] does the rest.
pub trait Backend: Send + Sync + 'static {
    /// For texts: `etcd 127.0.0.1:2379`.
    fn name(&self) -> &str;

    /// Reads a service from scratch and follows it: every whole list goes to [`Feed::publish`]. It is dropped when
    /// nobody watches any more, or to be called anew. It need not have limits for the list itself, but must not hold
    /// answers of any size.
    ///
    /// # Errors
    /// Why it cannot go on, which is its only end; it is then called again after a pause.
    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>>;

    /// Whether it may have lost registrations while it did not answer, those that are not renewed yet: true unless what
    /// it has is written down elsewhere, as records and files are.
    fn forgets(&self) -> bool {
        true
    }

    /// Keeps `instance` for at least `ttl` from now, in place of one with the same service and id. It may be called
    /// again for one that is held already, when renewing failed.
    fn hold<'a>(&'a self, instance: &'a Instance, ttl: Duration) -> BoxFuture<'a, Result<Box<dyn Held>>>;
}

/// A registration in a [`Backend`]. Dropping it leaves the rest to its time.
pub trait Held: Send + Sync {
    /// Keeps it for another `ttl`. An error makes [`Backend::hold`] be called again, so it need not mend anything.
    fn renew(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Ends it now.
    fn release(&mut self) -> BoxFuture<'_, Result<()>>;
}

/// A registry: a back end, and the rules that hold for every one.
pub struct Discovery {
    backend: Arc<dyn Backend>,
    options: Options,
    /// Each service is followed once, however many watch it.
    followed: Mutex<HashMap<String, Weak<Following>>>,
}

impl Discovery {
    /// A registry of this back end.
    pub fn new(backend: impl Backend, options: Options) -> Discovery {
        Discovery { backend: Arc::new(backend), options, followed: Mutex::default() }
    }

    /// What was set.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn follow(&self, service: &str) -> Arc<Following> {
        let feed = Arc::new(Feed::new(self.backend.name(), service, self.options.clone()));
        let mut driving = Box::pin(drive(self.backend.clone(), feed.clone()));
        // What is at hand, like a list or a file, is there when the watch is returned. The task polls it again, so
        // nothing is lost by a waker that does nothing.
        let _ = driving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let task = crate::runtime::spawn(driving).abort_handle();
        Arc::new(Following { feed, task })
    }

    pub(super) fn backend_name(&self) -> &str {
        self.backend.name()
    }

    pub(super) fn watch_service(&self, service: &str) -> Watch {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = followed.get(service).and_then(Weak::upgrade);
        // Its task ends with its runtime, which may be before the registry's end.
        let known = known.filter(|following| !following.task.is_finished());
        let following = known.unwrap_or_else(|| {
            followed.retain(|_, following| following.strong_count() > 0);
            let following = self.follow(service);
            followed.insert(service.to_owned(), Arc::downgrade(&following));
            following
        });
        let mut snapshots = following.feed.snapshots.subscribe();
        if following.state().known != Known::Nothing {
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

/// What the watches of one service share.
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
            tracing::info!(service = %self.feed.service, id, "an instance is gone: a connection to it failed");
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

/// Where a [`Backend`] puts what it reads of one service.
pub struct Feed {
    registry: String,
    service: String,
    options: Options,
    snapshots: watch::Sender<Arc<Snapshot>>,
    inner: Mutex<Inner>,
    /// Something was published.
    published: Notify,
    /// The back end gave up.
    failed: Notify,
}

struct Inner {
    settle: Settle,
    state: WatchState,
    /// Lists that were taken.
    answers: u64,
    /// Whether watchers were told anything yet; an empty first list is news too.
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
            inner: Mutex::new(Inner { settle, state: WatchState::default(), answers: 0, sent: false }),
            published: Notify::new(),
            failed: Notify::new(),
        }
    }

    /// The most bytes of an encoded instance, for [`Instance::decode`].
    pub fn instance_bytes_max(&self) -> usize {
        self.options.instance_bytes_max
    }

    /// The most instances of a list. Who reads a longer one may stop at one more.
    pub fn instances_max(&self) -> usize {
        self.options.instances_max
    }

    /// The most bytes of an answer with a whole list: a registry's own names beside ours take about as much again, and
    /// 256 MiB are enough for any.
    pub fn answer_bytes_max(&self) -> usize {
        let ours = self.options.instances_max.saturating_mul(self.options.instance_bytes_max);
        ours.saturating_mul(2).min(256 << 20)
    }

    /// The registry's whole list as it is now. Instances of other services are left out, and so are those that cannot
    /// be used, with a warning. A list that is too long is refused: the last one stays.
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
        inner.answers += 1;
        inner.state.known = Known::Registry;
        self.set_trouble(&mut inner, bad);
        let held_before = inner.settle.held().count();
        let snapshot = inner.settle.offer(Snapshot::new(good), Instant::now());
        let held = inner.settle.held().count();
        if held > held_before {
            tracing::warn!(
                registry = self.registry,
                service = self.service,
                held,
                "most instances have vanished at once: kept until that is confirmed"
            );
        }
        self.send(&mut inner, snapshot);
        drop(inner);
        self.published.notify_one();
    }

    /// Tells what is wrong without ending [`Backend::follow`]; the last good list stays.
    pub fn fail(&self, why: Status) {
        let mut inner = self.lock();
        self.set_trouble(&mut inner, Some(why));
    }

    /// Says what is wrong once, not with every try.
    fn set_trouble(&self, inner: &mut Inner, trouble: Option<Status>) {
        match (&inner.state.trouble, &trouble) {
            (Some(before), Some(now)) if before.message() == now.message() => {}
            (_, Some(now)) => tracing::warn!(
                registry = self.registry,
                service = self.service,
                trouble = %now,
                "what is known stays as it is"
            ),
            (Some(_), None) => {
                tracing::info!(
                    registry = self.registry,
                    service = self.service,
                    "the registry is well again"
                );
            }
            (None, None) => {}
        }
        inner.state.trouble = trouble;
    }

    /// Publishes what the disk has, if the registry has not answered.
    fn publish_cached(&self, snapshot: Snapshot) {
        let mut inner = self.lock();
        if inner.state.known == Known::Nothing {
            inner.state.known = Known::Disk;
            let snapshot = inner.settle.offer(snapshot, Instant::now());
            self.send(&mut inner, snapshot);
        }
    }

    fn send(&self, inner: &mut Inner, snapshot: Snapshot) {
        inner.state.held_back = inner.settle.held().map(str::to_owned).collect();
        let first = !std::mem::replace(&mut inner.sent, true);
        self.snapshots.send_if_modified(|last| {
            let changed = first || **last != snapshot;
            if changed {
                *last = Arc::new(snapshot);
            }
            changed
        });
    }

    fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Ready when the service is to be read from scratch, because instances are held back.
    async fn doubt(&self, asked: Option<Instant>) {
        let pause = self.options.confirm_after;
        loop {
            let due = self.lock().settle.due();
            match due.max(due.and(asked.map(|asked| asked + pause))) {
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

/// What a follow that lasted this long after an answer has proved: the registry is well, and the next pause is short.
const WELL_AFTER: Duration = Duration::from_secs(1);

/// A registry that has not answered after this time is down, as far as a start is concerned.
const PATIENCE: Duration = Duration::from_secs(1);

/// Follows a service for as long as somebody watches it.
async fn drive(backend: Arc<dyn Backend>, feed: Arc<Feed>) {
    tokio::join!(follow_on(&*backend, &feed), keep_on_disk(&feed));
}

async fn follow_on(backend: &dyn Backend, feed: &Feed) {
    let (mut failures, mut asked) = (0, None);
    loop {
        let (answers, started) = (feed.answers(), Instant::now());
        let Err(why) = tokio::select! {
            ended = backend.follow(&feed.service, feed) => ended,
            () = feed.doubt(asked) => {
                asked = Some(Instant::now());
                continue;
            }
        };
        feed.fail(why);
        if backend.forgets() {
            feed.lock().settle.away();
        }
        feed.failed.notify_one();
        let was_well = feed.answers() > answers && started.elapsed() >= WELL_AFTER;
        failures = if was_well { 1 } else { failures + 1 };
        sleep(client::pause(failures, feed.options.retry_max)).await;
    }
}

/// Reads the last snapshot from the disk if the registry does not answer, and writes those that it has.
async fn keep_on_disk(feed: &Feed) {
    let Some(folder) = &feed.options.cache else { return };
    let cache = cache::Cache::new(folder, &feed.service, &feed.options);
    let mut snapshots = feed.snapshots.subscribe();
    tokio::select! {
        _ = snapshots.changed() => {}
        () = feed.failed.notified() => {}
        () = sleep(PATIENCE) => {}
    }
    if feed.lock().state.known == Known::Nothing
        && let Some(snapshot) = cache.read().await
    {
        feed.publish_cached(snapshot);
    }
    let mut written = None;
    loop {
        let latest = snapshots.borrow_and_update().clone();
        let is_new = written.as_ref() != Some(&latest);
        if is_new && feed.lock().state.known == Known::Registry {
            cache.write(latest.clone()).await;
            written = Some(latest);
        }
        // The sender is in the feed.
        let _ = snapshots.changed().await;
    }
}
