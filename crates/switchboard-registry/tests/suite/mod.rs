//! The requirements of every registry, checked against the real server: one function, run by a test for each of them.
#![allow(dead_code, reason = "each test uses a part")]

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(any(feature = "consul", feature = "kubernetes", feature = "nacos"))]
pub(crate) mod http;
#[cfg(any(feature = "consul", feature = "etcd", feature = "redis", feature = "zookeeper"))]
pub(crate) mod local;
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "consul", feature = "etcd", feature = "mdns", feature = "redis", feature = "zookeeper"))]
pub(crate) mod rpcx;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use switchboard::{
    Code, Result,
    discover::{Instance, Lease, Options, Registry, SnapshotSource, State, Watch},
};
use tokio::time::{sleep, timeout};

/// The server of a registry, which tests start and stop, and the registered instances.
pub(crate) trait Rig {
    /// Creates a separate registry, as another process has one.
    fn connect(&self, options: Options) -> Arc<dyn Registry>;

    /// Ends the server as a crash would, or makes it unreachable.
    async fn stop(&mut self);

    /// Starts it again at the same address.
    async fn start(&mut self);

    /// The shortest TTL that the registry supports.
    fn ttl(&self) -> Duration;

    /// Registers an instance for as long as its process lives.
    async fn join(&mut self, instance: Instance) {
        let options = options().ttl(self.ttl());
        let registry = self.connect(options);
        let key = (instance.service.clone(), instance.id.clone());
        // A slow registry gets another request, as from servers.
        let lease = loop {
            match registry.register(instance.clone()).await {
                Err(slow) if slow.code() == Code::Unavailable => eprintln!("{slow}"),
                taken => break taken.expect("the registry takes it"),
            }
        };
        self.members().insert(key, (registry, lease));
    }

    /// Deregisters an instance.
    async fn leave(&mut self, service: &str, id: &str) {
        let (_, lease) = self.members().remove(&key(service, id)).expect("it has joined");
        // Without a response in time, the lease expires.
        slow_at_most(lease.end().await);
    }

    /// Ends the process of an instance without deregistration.
    async fn crash(&mut self, service: &str, id: &str) {
        let (_, lease) = self.members().remove(&key(service, id)).expect("it has joined");
        lease.kill();
    }

    /// Changes an instance.
    async fn change(&mut self, instance: Instance) {
        let (_, lease) = &self.members()[&key(&instance.service, &instance.id)];
        // Without a response in time, the next renewal sends the change.
        slow_at_most(lease.replace(instance).await);
    }

    /// Returns the registered instances.
    fn members(&mut self) -> &mut Members;
}

/// Fails when the registry has refused something, and not when it was slow.
fn slow_at_most(outcome: Result<()>) {
    match outcome {
        Err(slow) if slow.code() == Code::Unavailable => eprintln!("{slow}"),
        taken => taken.expect("the registry takes it"),
    }
}

/// The registered instances by service and id.
pub(crate) type Members = HashMap<(String, String), (Arc<dyn Registry>, Lease)>;

fn key(service: &str, id: &str) -> (String, String) {
    (service.to_owned(), id.to_owned())
}

/// Options with short times for tests; changes take effect without confirmation.
pub(crate) fn options() -> Options {
    Options::new().retry_max(Duration::from_millis(200)).confirm_after(Duration::from_secs(3600))
}

/// Runs every case, one after the other, against one server.
pub(crate) async fn run(rig: &mut impl Rig) {
    run_serverless(rig).await;
    case("the registry is down and back", down_and_back(rig)).await;
}

/// Runs the cases of a registry that has no server which could be down.
pub(crate) async fn run_serverless(rig: &mut impl Rig) {
    case("empty start", empty_start(rig)).await;
    case("join, change and leave", join_change_leave(rig)).await;
    case("crash", crash(rig)).await;
    case("prefix twins", prefix_twins(rig)).await;
    case("odd names", odd_names(rig)).await;
    case("mass change", mass_change(rig)).await;
    case("never below half", never_below_half(rig)).await;
    case("succession", succession(rig)).await;
}

async fn case(name: &str, case: impl Future<Output = ()>) {
    eprintln!("case: {name}");
    timeout(Duration::from_secs(120), case).await.unwrap_or_else(|_| panic!("{name} does not end"));
}

async fn empty_start(rig: &mut impl Rig) {
    let registry = rig.connect(options());
    let mut watch = registry.watch("suite.Empty");
    assert_eq!(watch.changed().await.instances, []);
    assert_eq!(watch.state().source, SnapshotSource::Registry);
    rig.join(instance("suite.Empty", 1)).await;
    until(&mut watch, "1").await;
}

async fn join_change_leave(rig: &mut impl Rig) {
    let service = "suite.Join";
    let registry = rig.connect(options());
    let mut watch = registry.watch(service);
    rig.join(instance(service, 1)).await;
    until(&mut watch, "1").await;
    rig.join(instance(service, 2).weight(7).group("g").zone("z").version("v").tag("latitude", "1.5")).await;
    until(&mut watch, "1 2").await;
    let full = instance(service, 2).weight(7).group("g").zone("z").version("v").tag("latitude", "1.5");
    assert_eq!(watch.latest().find("2"), Some(&full), "all fields arrive");
    rig.change(instance(service, 2).state(State::Draining)).await;
    until_is(&mut watch, |watch| watch.latest().find("2").map(|found| found.state) == Some(State::Draining))
        .await;
    let mut late = rig.connect(options()).watch(service);
    until(&mut late, "1 2").await;
    rig.leave(service, "2").await;
    until(&mut watch, "1").await;
    until(&mut late, "1").await;
    // Longer than its TTL: the lease is renewed.
    rig.join(instance(service, 3)).await;
    until(&mut watch, "1 3").await;
    let gone = timeout(rig.ttl() * 2, async {
        loop {
            watch.changed().await;
        }
    });
    assert!(gone.await.is_err());
    assert_eq!(ids(&watch), "1 3");
}

async fn crash(rig: &mut impl Rig) {
    let service = "suite.Crash";
    let mut watch = rig.connect(options()).watch(service);
    rig.join(instance(service, 1)).await;
    rig.join(instance(service, 2)).await;
    until(&mut watch, "1 2").await;
    rig.crash(service, "1").await;
    until(&mut watch, "2").await;
    rig.join(instance(service, 1)).await;
    until(&mut watch, "1 2").await;
}

async fn prefix_twins(rig: &mut impl Rig) {
    for service in ["suite.Twin", "suite.TwinB", "suite.Twin/B", "suite"] {
        rig.join(instance(service, 1).tag("service", service)).await;
    }
    for service in ["suite.Twin", "suite.TwinB", "suite.Twin/B", "suite"] {
        let mut watch = rig.connect(options()).watch(service);
        until(&mut watch, "1").await;
        assert_eq!(watch.latest().instances[0].tags["service"], service);
    }
    for missing in ["suit", "suite.", "suite.Twi", "suite.Twin/", "suite.Twin/BC"] {
        let mut none = rig.connect(options()).watch(missing);
        assert_eq!(none.changed().await.instances, []);
    }
    rig.leave("suite.Twin", "1").await;
    let mut twin = rig.connect(options()).watch("suite.Twin");
    until(&mut twin, "").await;
    let mut other = rig.connect(options()).watch("suite.TwinB");
    until(&mut other, "1").await;
}

async fn odd_names(rig: &mut impl Rig) {
    let service = "suite/\u{e4} %2F*[x]?";
    let id = "tcp://[::1]:80/?a=b&c=%20 \u{1f600}";
    rig.join(instance(service, 1).id(id)).await;
    let mut watch = rig.connect(options()).watch(service);
    until(&mut watch, id).await;
    rig.leave(service, id).await;
}

async fn mass_change(rig: &mut impl Rig) {
    const MANY: usize = 40;
    let service = "suite.Mass";
    let mut watch = rig.connect(options()).watch(service);
    for at in 0..MANY {
        rig.join(instance(service, at)).await;
    }
    until_is(&mut watch, |watch| watch.latest().instances.len() == MANY).await;
    for at in 0..MANY {
        rig.change(instance(service, at).state(State::Draining)).await;
    }
    // An instance that was not seen draining would be held back.
    until_is(&mut watch, |watch| {
        watch.latest().instances.iter().all(|instance| instance.state == State::Draining)
    })
    .await;
    for at in 0..MANY {
        rig.join(instance(service, MANY + at)).await;
        rig.leave(service, &at.to_string()).await;
    }
    until_is(&mut watch, |watch| {
        let latest = watch.latest();
        latest.instances.len() == MANY && latest.instances.iter().all(|instance| instance.state == State::Up)
    })
    .await;
    for at in 0..MANY {
        rig.leave(service, &(MANY + at).to_string()).await;
    }
}

async fn never_below_half(rig: &mut impl Rig) {
    let service = "suite.Half";
    let mut doubting = rig.connect(options()).watch(service);
    let mut waiting = rig.connect(options().confirm_after(Duration::from_millis(500))).watch(service);
    for at in 0..4 {
        rig.join(instance(service, at)).await;
    }
    until(&mut doubting, "0 1 2 3").await;
    until(&mut waiting, "0 1 2 3").await;
    for at in 1..4 {
        rig.leave(service, &at.to_string()).await;
    }
    // It is removed when the registry was read again and still does not have it.
    until(&mut waiting, "0").await;
    until_is(&mut doubting, |watch| !watch.state().held_back.is_empty()).await;
    assert!(doubting.latest().instances.len() >= 2);
    for at in 1..4 {
        doubting.confirm_gone(&at.to_string());
    }
    until(&mut doubting, "0").await;
    assert_eq!(doubting.state().held_back, [""; 0]);
}

/// Another process registers the same id, with the same content or another, before the first one ends.
async fn succession(rig: &mut impl Rig) {
    let service = "suite.Succession";
    let connect = || rig.connect(options().ttl(rig.ttl()));
    for successor in [instance(service, 1), instance(service, 1).weight(7)] {
        let (old, new) = (connect(), connect());
        let lease = match old.register(instance(service, 1)).await {
            // The registry does not support registrations.
            Err(refused) if refused.code() == Code::Unimplemented => return,
            lease => lease.expect("it registers"),
        };
        let newer = new.register(successor.clone()).await.expect("it registers");
        let mut watch = rig.connect(believing()).watch(service);
        until_is(&mut watch, |watch| watch.latest().instances == [successor.clone()]).await;
        // As a draining server does.
        lease.replace(instance(service, 1).state(State::Draining)).await.expect("it replaces");
        lease.end().await.expect("it deregisters");
        let mut watch = rig.connect(believing()).watch(service);
        assert_eq!(watch.changed().await.instances, [successor], "the newer registration stays as it is");
        newer.end().await.expect("it deregisters");
        until(&mut watch, "").await;
    }
}

async fn down_and_back(rig: &mut impl Rig) {
    let service = "suite.Down";
    let folder = Folder::new();
    let registry = rig.connect(options().cache(&folder.0));
    let mut watch = registry.watch(service);
    for at in 0..3 {
        rig.join(instance(service, at)).await;
    }
    until(&mut watch, "0 1 2").await;
    folder.holds(3).await;
    rig.stop().await;
    until_is(&mut watch, |watch| watch.state().error.is_some()).await;
    assert_eq!(ids(&watch), "0 1 2");

    // Another process starts meanwhile: with the cache on disk it has the instances, without it none.
    let mut from_disk = rig.connect(options().cache(&folder.0)).watch(service);
    until(&mut from_disk, "0 1 2").await;
    assert_eq!(from_disk.state().source, SnapshotSource::Disk);
    let without = rig.connect(options()).watch(service);
    assert_eq!(without.state().source, SnapshotSource::None);
    assert_eq!(ids(&without), "");

    // Longer than the TTL of the leases: whether the registry keeps them in memory or not, its state is restored soon.
    sleep(rig.ttl()).await;
    rig.start().await;
    for watch in [&mut watch, &mut from_disk, &mut without.clone()] {
        until_is(watch, |watch| {
            let state = watch.state();
            let known = state.source == SnapshotSource::Registry && state.error.is_none();
            known && state.held_back.is_empty() && ids(watch) == "0 1 2"
        })
        .await;
    }
    rig.join(instance(service, 3)).await;
    until(&mut watch, "0 1 2 3").await;
    rig.leave(service, "1").await;
    until(&mut watch, "0 2 3").await;
}

/// A registry whose server responds with errors keeps the instances that it has read: `set` makes the server respond
/// with one of `faults`, or normally again. Changes take effect without confirmation.
pub(crate) async fn errors_empty_nothing<F: std::fmt::Debug + Clone>(
    registry: Arc<dyn Registry>,
    service: &str,
    faults: &[F],
    set: impl Fn(Option<F>),
) {
    set(None);
    let mut watch = registry.watch(service);
    until_is(&mut watch, |watch| !watch.latest().instances.is_empty()).await;
    let known = ids(&watch);
    for fault in faults {
        eprintln!("fault: {fault:?}");
        set(Some(fault.clone()));
        until_is(&mut watch, |watch| {
            assert_eq!(ids(watch), known, "after {fault:?}");
            watch.state().error.is_some()
        })
        .await;
        set(None);
        until_is(&mut watch, |watch| watch.state().error.is_none()).await;
        assert_eq!(ids(&watch), known, "after {fault:?} and back");
    }
}

/// Error with which a server fails now, if it does.
pub(crate) type Fault<F> = Arc<Mutex<Option<F>>>;

/// A fault, none at first, and what sets it.
pub(crate) fn fault<F: Clone + Send + 'static>() -> (Fault<F>, impl Fn(Option<F>)) {
    let fault = Fault::<F>::default();
    let set = fault.clone();
    (fault, move |new| *set.lock().expect("no test panics with it") = new)
}

/// Options for [`errors_empty_nothing`].
pub(crate) fn believing() -> Options {
    options().confirm_after(Duration::ZERO)
}

/// Creates the instance of a service with a number as its id.
pub(crate) fn instance(service: &str, at: usize) -> Instance {
    Instance::new(service, format!("tcp://127.0.0.1:{}", 1000 + at)).id(at.to_string())
}

/// Returns the ids in the snapshot of a watch, in numerical order.
pub(crate) fn ids(watch: &Watch) -> String {
    let latest = watch.latest();
    let ids: Vec<_> = latest.instances.iter().map(|instance| instance.id.as_str()).collect();
    ids.join(" ")
}

/// Waits for a snapshot with these ids.
pub(crate) async fn until(watch: &mut Watch, wanted: &str) {
    until_is(watch, |watch| ids(watch) == wanted).await;
}

/// Waits for a state. The state of a watch is not part of its snapshots, so it is polled as well.
pub(crate) async fn until_is(watch: &mut Watch, is: impl Fn(&Watch) -> bool) {
    let reached = async {
        while !is(watch) {
            let _ = timeout(Duration::from_millis(20), watch.changed()).await;
        }
    };
    if timeout(Duration::from_secs(30), reached).await.is_err() {
        panic!("the state was not reached: {watch:?} has {}", ids(watch));
    }
}

/// A temporary folder that is removed when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("switchboard-registry-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Folder(folder)
    }

    /// Waits until a file in it has this many instances. A file that is being written has another extension until it
    /// replaces the one before, which may take long on a slow disk; a reader does not see it until then.
    async fn holds(&self, instances: usize) {
        loop {
            let files = std::fs::read_dir(&self.0).expect("the folder is there");
            let paths = files.filter_map(|file| Some(file.ok()?.path()));
            let complete = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
            let texts = complete.filter_map(|path| std::fs::read_to_string(path).ok());
            if texts.into_iter().any(|text| text.matches("\"address\"").count() == instances) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
