//! Settings of a hub.

use super::{
    Heartbeat, Hub, HubLimits,
    rate::Rate,
    registry::Registry,
    state::{RoomClass, State},
};
use crate::{
    names,
    room::Rooms,
    tickets::Tickets,
    verifier::{self, Verifier},
};
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use switchboard::{Result, auth::Auth, runtime};
use switchboard_message::{Attempt, Bus, Limits, Pattern, Publication, Topic, TopicOptions, broker::Broker};
use switchboard_wire::Codec;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

/// Topic without subscribers and history.
const PROBE: &str = "push/probe";
/// Publications to an engine that nothing waits for.
const OUTGOING_MAX: usize = 4_096;
/// Time for which resume tokens are valid.
const RESUME_WINDOW: Duration = Duration::from_secs(600);
/// Lifecycle events that are kept for subscribers that come back.
const EVENTS_KEPT: (usize, Duration) = (1_024, Duration::from_secs(3_600));

/// Settings of a [`Hub`]. Without a verifier, the hub refuses every device.
#[must_use = "a builder has no effect before `build`"]
pub struct HubBuilder {
    verifiers: Vec<Box<dyn Verifier>>,
    rooms: Vec<(String, Rooms)>,
    bus: Topics,
    limits: HubLimits,
    bus_limits: Option<Limits>,
    heartbeat: Heartbeat,
    has_events: bool,
    user_history: Option<(usize, Duration)>,
    tickets: Option<Tickets>,
    resume_window: Duration,
}

enum Topics {
    Own,
    Url(String),
    Engine(Arc<dyn Broker>),
    Bus(Bus),
}

impl HubBuilder {
    pub(super) fn new() -> HubBuilder {
        HubBuilder {
            verifiers: Vec::new(),
            rooms: Vec::new(),
            bus: Topics::Own,
            limits: HubLimits::default(),
            bus_limits: None,
            heartbeat: Heartbeat::default(),
            has_events: true,
            user_history: None,
            tickets: None,
            resume_window: RESUME_WINDOW,
        }
    }

    /// Adds a verifier of devices. Several are tried in this order.
    pub fn auth(mut self, verifier: impl Verifier) -> HubBuilder {
        self.verifiers.push(Box::new(verifier));
        self
    }

    /// Adds a check of calls as a verifier: the token is its `authorization: Bearer`.
    pub fn auth_of_calls(self, auth: impl Auth) -> HubBuilder {
        self.auth(verifier::WithAuth(auth))
    }

    /// Accepts every device that no verifier before refuses, as what it says it is. For tests, and behind a gateway
    /// that checks devices. If this is the only verifier, a device also takes a key from a device of another user; with
    /// others before it, the key counts as chosen by the device.
    pub fn open(self) -> HubBuilder {
        let keeps_keys = self.verifiers.is_empty();
        self.auth(verifier::Open { keeps_keys })
    }

    /// Sets the settings of the rooms whose names match a pattern. The first pattern that matches applies.
    pub fn rooms(mut self, pattern: impl Into<String>, settings: Rooms) -> HubBuilder {
        self.rooms.push((pattern.into(), settings));
        self
    }

    /// Keeps the topics in an engine, which other processes use as well: `nats://host:4222` with the feature `nats`,
    /// `redis://host:6379` with the feature `redis`. The default is this process.
    pub fn engine(mut self, url: impl Into<String>) -> HubBuilder {
        self.bus = Topics::Url(url.into());
        self
    }

    /// Keeps the topics in this engine.
    pub fn broker(mut self, broker: Arc<dyn Broker>) -> HubBuilder {
        self.bus = Topics::Engine(broker);
        self
    }

    /// Uses the topics of a bus. The histories of rooms are those of its own settings.
    pub fn bus(mut self, bus: Bus) -> HubBuilder {
        self.bus = Topics::Bus(bus);
        self
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: HubLimits) -> HubBuilder {
        self.limits = limits;
        self
    }

    /// Sets the limits of the bus that the hub creates.
    pub fn bus_limits(mut self, limits: Limits) -> HubBuilder {
        self.bus_limits = Some(limits);
        self
    }

    /// Sets how often devices must show that they are alive.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> HubBuilder {
        self.heartbeat = heartbeat;
        self
    }

    /// Keeps this many entries of each user, not older than `age_max`, for devices that come back.
    pub fn user_history(mut self, entries_max: usize, age_max: Duration) -> HubBuilder {
        self.user_history = Some((entries_max, age_max));
        self
    }

    /// Signs resume tokens with the first of these keys, and accepts those of all: several processes need the same
    /// keys.
    /// Without it, the key is that of this process. Each needs at least 32 bytes.
    pub fn resume_keys(mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> HubBuilder {
        self.tickets = Some(Tickets::new(keys));
        self
    }

    /// Sets the time for which resume tokens are valid; default 10 minutes.
    pub fn resume_window(mut self, window: Duration) -> HubBuilder {
        self.resume_window = window;
        self
    }

    /// Publishes no lifecycle events.
    pub fn without_events(mut self) -> HubBuilder {
        self.has_events = false;
        self
    }

    /// Creates the hub.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern, key or address of an engine.
    pub async fn build(self) -> Result<Hub> {
        let HubBuilder { verifiers, rooms, bus, limits, bus_limits, heartbeat, has_events, .. } = self;
        let (user_history, resume_window) = (self.user_history, self.resume_window);
        let tickets = self.tickets.unwrap_or_else(Tickets::random);
        tickets.check()?;
        verifiers.iter().try_for_each(|verifier| verifier.check())?;
        let mut classes = Vec::with_capacity(rooms.len() + 1);
        for (pattern, settings) in rooms {
            names::rooms(&pattern)?;
            classes.push(RoomClass::new(Some(Pattern::new(&pattern)?), settings));
        }
        classes.push(RoomClass::new(None, Rooms::new()));
        let bus = match bus {
            Topics::Bus(bus) => bus,
            Topics::Own => own_bus(&classes, user_history, bus_limits, None)?,
            Topics::Engine(engine) => own_bus(&classes, user_history, bus_limits, Some(engine))?,
            Topics::Url(url) => {
                own_bus(&classes, user_history, bus_limits, Some(switchboard_broker::connect(&url)?))?
            }
        };
        let is_shared = is_shared(&bus)?;
        let state = State {
            is_shared,
            classes,
            verifiers: verifiers.into(),
            registry: Registry::new(),
            counters: Arc::default(),
            user_rate: Rate::new(limits.user_publications_per_s, u32::MAX),
            audit_rate: Arc::new(Rate::new(1.0 / 60.0, u32::MAX)),
            broadcast_rate: Rate::new(limits.broadcasts_per_s, 1),
            limits,
            heartbeat,
            node: switchboard_core::clock::random(),
            has_events,
            events: Mutex::new(0),
            events_topic: Topic::new(names::EVENTS)?,
            has_user_history: user_history.is_some(),
            tickets,
            resume_window,
            closing: watch::Sender::new(0),
            all_topic: Topic::new(names::ALL)?,
            outgoing: is_shared.then(|| send_later(bus.clone())),
            bus,
        };
        Ok(Hub { state: Arc::new(state) })
    }
}

/// Creates the bus of a hub.
fn own_bus(
    classes: &[RoomClass],
    user_history: Option<(usize, Duration)>,
    limits: Option<Limits>,
    engine: Option<Arc<dyn Broker>>,
) -> Result<Bus> {
    let (entries, age) = EVENTS_KEPT;
    let mut builder = Bus::builder().codec(Codec::Json);
    builder = builder.topics(names::EVENTS, TopicOptions::new().history(entries, age))?;
    if let Some((entries, age)) = user_history {
        builder = builder.topics("user/*", TopicOptions::new().history(entries, age))?;
    }
    for class in classes {
        let options = class.settings.options;
        if let Some(pattern) = &class.pattern {
            builder = builder.topics(&format!("room/{pattern}"), options)?;
        }
    }
    if let Some(limits) = limits {
        builder = builder.limits(limits);
    }
    Ok(match engine {
        Some(engine) => builder.engine(engine).build(),
        None => builder.build(),
    })
}

/// Returns whether the topics of a bus are outside the process: then a publication cannot be made without a wait.
fn is_shared(bus: &Bus) -> Result<bool> {
    let probe = bus.publish_encoded(PROBE, Publication::new(Codec::Raw, ""));
    Ok(matches!(probe.attempt()?, Attempt::Waits(_)))
}

/// Spawns a task that publishes to an engine in order, and repeats while it is unavailable.
fn send_later(bus: Bus) -> mpsc::Sender<(Topic, Publication)> {
    let (sender, mut receiver) = mpsc::channel::<(Topic, Publication)>(OUTGOING_MAX);
    runtime::spawn(async move {
        while let Some((topic, publication)) = receiver.recv().await {
            let mut pause = Duration::from_millis(50);
            loop {
                let again = copy(&publication);
                match bus.publish_encoded(&topic, again).await {
                    Err(status) if status.code() == switchboard::Code::Unavailable => {
                        tracing::debug!("push: topic \"{topic}\": {status}");
                        sleep(pause).await;
                        pause = pause.saturating_mul(2).min(Duration::from_secs(5));
                    }
                    Err(status) => {
                        tracing::warn!("push: an entry of topic \"{topic}\" is lost: {status}");
                        break;
                    }
                    Ok(_) => break,
                }
            }
        }
    });
    sender
}

/// Returns a second publication with the same content.
pub(super) fn copy(publication: &Publication) -> Publication {
    let mut copy = Publication::new(publication.codec, publication.bytes.clone());
    copy.headers = publication.headers.clone();
    copy.key = publication.key.clone();
    copy.id = publication.id.clone();
    copy.expires_in = publication.expires_in;
    copy
}

impl fmt::Debug for HubBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
