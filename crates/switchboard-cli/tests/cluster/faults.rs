//! Five servers, a thousand callers, and servers that are killed and started again all the time: no call is lost that a
//! safe retry could save, no caller is stuck, every server gets calls again, and a registry that dies meanwhile changes
//! nothing.
//!
//! `SWITCHBOARD_FAULT_SECONDS` is how long servers are killed, 10 unless set.

use super::{
    GREETER,
    load::Load,
    process::{Process, until, until_or},
};
use std::time::{Duration, Instant};
use switchboard::{
    Channel,
    discover::{SnapshotSource, Watch},
};

const SERVERS: usize = 5;
const CALLERS: usize = 1000;

/// Servers, their registry, and callers.
struct Fleet {
    servers: Vec<Process>,
    home: Option<Process>,
    registry: String,
    channel: Channel,
    watch: Watch,
    /// From the start of a server to its first answer, the longest.
    slowest: Duration,
}

impl Fleet {
    async fn start() -> Fleet {
        let home = Process::start("127.0.0.1:0", "--registry");
        let registry = home.registry();
        let flags = flags(&registry);
        let servers = (0..SERVERS).map(|_| Process::start("127.0.0.1:0", &flags)).collect();
        // One registry, so that callers and this test see the same.
        let found = switchboard_registry::connect(&registry).unwrap();
        let watch = found.watch(GREETER);
        // Servers register after they listen, and calls of an empty fleet fail at once.
        until("every server in the registry", || watch.latest().instances.len() == SERVERS).await;
        let channel = Channel::fleet(found, GREETER).connect().await.unwrap();
        let fleet = Fleet { servers, home: Some(home), registry, channel, watch, slowest: Duration::ZERO };
        fleet.all_up("at the start").await;
        fleet
    }

    /// Waits until callers have a connection to each server.
    async fn all_up(&self, when: &str) {
        until(&format!("a connection to every server {when}"), || {
            let endpoints = self.channel.endpoints();
            endpoints.len() == SERVERS && endpoints.iter().all(|endpoint| endpoint.state == "up")
        })
        .await;
    }

    /// Starts a server again where it was, and waits until it gets calls.
    async fn restart(&mut self, at: usize, when: &str) {
        let began = Instant::now();
        self.servers[at] = Process::start(&self.servers[at].address, &flags(&self.registry));
        let (server, channel) = (&self.servers[at], &self.channel);
        let answered = || server.answered(GREETER, "Greet") > 0;
        until_or(&format!("a call for server {at} {when}"), answered, || {
            format!("{:#?}", channel.endpoints())
        })
        .await;
        self.slowest = self.slowest.max(began.elapsed());
    }

    /// Kills these, sees to it that everybody goes on, and starts them again.
    async fn round(&mut self, load: &Load, victims: &[usize], when: &str) {
        for victim in victims {
            self.servers[*victim].kill();
        }
        load.goes_on(&format!("with servers {victims:?} dead, {when}"), 3).await;
        for victim in victims {
            self.restart(*victim, when).await;
        }
        load.goes_on(&format!("with servers {victims:?} back, {when}"), 3).await;
    }

    fn kill_registry(&mut self) {
        self.home.as_mut().unwrap().kill();
    }

    fn restart_registry(&mut self) {
        let address = self.home.take().unwrap().address.clone();
        self.home = Some(Process::start(&address, "--registry"));
    }
}

fn flags(registry: &str) -> String {
    // The shorter the lease, the more a registry that is down could spoil.
    format!("--register {registry}?ttl=2s")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_die_and_come_back_under_load() {
    let seconds = std::env::var("SWITCHBOARD_FAULT_SECONDS").ok().and_then(|text| text.parse().ok());
    let span = Duration::from_secs(seconds.unwrap_or(10));
    let mut fleet = Fleet::start().await;
    let load = Load::start(&fleet.channel, CALLERS);
    load.goes_on("before anything has happened", 3).await;
    let began = Instant::now();
    let mut rounds = 0;
    // A third of the time with a registry, one without, one with a new and empty one.
    for phase in ["with the registry", "without a registry", "with a new registry"] {
        match phase {
            "without a registry" => fleet.kill_registry(),
            "with a new registry" => fleet.restart_registry(),
            _ => {}
        }
        let phase_began = Instant::now();
        let mut first = true;
        while first || phase_began.elapsed() < span / 3 {
            first = false;
            rounds += 1;
            let victim = rounds % SERVERS;
            let pair = [victim, (victim + 2) % SERVERS];
            // Every third time two at once.
            let victims = if rounds % 3 == 0 { &pair[..] } else { &pair[..1] };
            fleet.round(&load, victims, phase).await;
            assert_eq!(fleet.channel.endpoints().len(), SERVERS, "{phase}: callers lost sight of a server");
        }
        fleet.all_up(phase).await;
    }
    until("the end of all doubt about the new registry", || {
        let state = fleet.watch.state();
        state.source == SnapshotSource::Registry && state.error.is_none() && state.held_back.is_empty()
    })
    .await;
    let took = began.elapsed();
    let said = load.stop().await;
    println!("{rounds} rounds in {took:?}; back after {:?} at most; {said}", fleet.slowest);
}
