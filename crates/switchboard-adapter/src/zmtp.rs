//! Sockets of ZeroMQ on the topics of a bus.
//!
//! ```text
//! SUB, XSUB ─ prefixes ─► filters ─┐
//!                                  ├─ one broadcast buffer per set of prefixes ◄─ feed ◄─ bus
//! PUB, PUSH ─ messages ─► bus      │
//! PULL ◄─ one entry at a time ─────┴─ jobs ◄─ group of the bus
//! REQ, DEALER ─ requests ─► calls ─► services of the server, or a ROUTER of the application
//! ```

mod adapter;
mod calls;
#[cfg(feature = "curve")]
mod curve;
mod dealer;
mod entries;
mod feed;
mod filters;
mod interests;
mod jobs;
mod login;
mod mapping;
mod pair;
mod peer;
mod profiles;
mod publishing;
mod request;
mod routed;
mod router;
mod sealed;
mod stats;
mod subscriptions;
mod websocket;

pub use dealer::{ZmtpDealer, ZmtpDealerSender};
pub use pair::ZmtpPair;
pub use router::{ZmtpRouter, ZmtpRouterMessage, ZmtpRouterOptions, ZmtpRouterSender};
pub use stats::ZmtpStats;

use adapter::ZmtpAdapter;
use bytes::Bytes;
use mapping::{Local, Mapping};
use profiles::{Profile, Profiles};
use router::Inlet;
use stats::Counters;
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use switchboard_core::{Limit, Result, counters::CounterSource};
use switchboard_fanout::{Engines, Options};
use switchboard_message::{Bus, Subscribe, Topic, TopicRules};
use switchboard_net::plugin::{Plugin, PluginContext, PluginServer};
use switchboard_wire::{
    Status,
    spec::WireSpec,
    zmtp::{self, Limits, Mechanism, Settings, SocketType},
};
use websocket::ZmtpServer;

/// ZMTP 3, the protocol of ZeroMQ.
pub static ZMTP: WireSpec =
    WireSpec { title: "ZMTP 3, sockets of ZeroMQ", sniff: Some(zmtp::sniff), ..WireSpec::named("zmtp") };

/// Topic of messages with a single frame, which name no topic.
const SINGLE_FRAMES: &str = "zmq";

/// A plugin that serves sockets of ZeroMQ. Cheap to clone.
///
/// The type of a peer decides what its connection does:
///
/// | peer | connection |
/// | --- | --- |
/// | SUB, XSUB | receives the entries of topics with one of its prefixes: the name of the topic, then the entry |
/// | PUB, XPUB | publishes: the first frame is the name of the topic, the others are the entry |
/// | REQ, DEALER, ROUTER | with [`services`](Self::services): calls the services of the server |
/// | REQ, DEALER, ROUTER | with [`router`](Self::router): talks to a ROUTER of the application |
/// | REP, DEALER, ROUTER | with [`dealer`](Self::dealer): gets messages of a DEALER of the application in turn |
/// | PAIR | with [`pair`](Self::pair): talks to a PAIR of the application |
/// | PUSH | with [`pipeline`](Self::pipeline): publishes all of its messages to one topic |
/// | PULL | with [`pipeline`](Self::pipeline): each entry of that topic goes to one of these peers |
///
/// An entry of several frames keeps their lengths in a header, so that a SUB receives the frames that a PUB sent. A
/// message of one frame, without the name of a topic, goes to the topic `zmq`, and subscribers receive it as one frame
/// that their prefixes are compared with.
///
/// ZeroMQ's publishers learn nothing about their messages: those that the bus refuses are dropped and
/// [counted](Self::stats). A subscriber that is too slow loses the oldest entries, which is counted as well.
#[derive(Clone, Debug)]
pub struct Zmtp {
    shared: Arc<Shared>,
}

/// Settings and counters of the plugin, for all engines.
#[derive(Clone, Debug)]
struct Shared {
    bus: Bus,
    rules: TopicRules,
    mapping: Mapping,
    pipeline: Option<Pipeline>,
    /// The ROUTER and DEALER sockets of the application.
    routers: Vec<Inlet>,
    /// Method of requests that name none.
    default_method: Option<String>,
    single_frames: Topic,
    /// The limits on input; else those of the server.
    limits: Option<Limits>,
    options: Options,
    is_anonymous: bool,
    is_plain: bool,
    /// CURVE with the key of the server.
    curve: Option<Mechanism>,
    counters: Arc<Counters>,
}

/// The topic of PUSH and PULL peers, and the group that PULL peers are members of.
#[derive(Clone, Debug)]
struct Pipeline {
    topic: Topic,
    group: String,
}

/// Time for which a job may wait for room in a peer.
const JOB_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

impl Pipeline {
    /// Returns a subscription to the jobs. All members of a group have the same options.
    fn member<'a>(&self, bus: &'a Bus) -> Subscribe<'a, Bytes> {
        let jobs = bus.subscribe_encoded(&self.topic).group(self.group.clone());
        // A job waits until a peer has room, and goes back when there is no peer: neither is a failure.
        jobs.ack_wait(JOB_WAIT).attempts_max(u32::MAX)
    }
}

impl Zmtp {
    /// Creates a plugin that serves SUB, XSUB, PUB and XPUB peers on the topics of a bus.
    pub fn new(bus: Bus) -> Zmtp {
        let mut mapping = Mapping::default();
        let peers = [SocketType::Pub, SocketType::Sub, SocketType::Xpub, SocketType::Xsub];
        mapping.add(peers, Local::Topics);
        let shared = Shared {
            bus,
            rules: TopicRules::default(),
            mapping,
            pipeline: None,
            routers: Vec::new(),
            default_method: None,
            single_frames: Topic::new(SINGLE_FRAMES).expect("a valid name"),
            limits: None,
            options: Options::default(),
            is_anonymous: false,
            is_plain: false,
            curve: None,
            counters: Arc::default(),
        };
        Zmtp { shared: Arc::new(shared) }
    }

    fn with(mut self, change: impl FnOnce(&mut Shared)) -> Zmtp {
        change(Arc::make_mut(&mut self.shared));
        self
    }

    /// Serves PUSH and PULL peers: PUSH peers publish to this topic, and each entry of it goes to one of the PULL
    /// peers, which are members of this group. From the start of a server on, entries wait for a PULL peer, within the
    /// limits of the topic.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name of a topic, and for a name of a group that is empty or longer than
    /// [`key_bytes_max`](switchboard_message::Limits::key_bytes_max) of the bus.
    pub fn pipeline(self, topic: &str, group: &str) -> Result<Zmtp> {
        let max = self.shared.bus.limits().key_bytes_max;
        if group.is_empty() || group.len() > max {
            let text = format!(
                "pipeline: the name of the group has {} bytes; expected 1 to {max} (key_bytes_max)",
                group.len()
            );
            return Err(Status::invalid_argument(text));
        }
        let pipeline = Pipeline { topic: Topic::new(topic)?, group: group.to_owned() };
        Ok(self.with(|shared| {
            shared.mapping.add([SocketType::Pull, SocketType::Push], Local::Pipeline);
            shared.pipeline = Some(pipeline);
        }))
    }

    /// Lets peers of these types, of REQ, DEALER and ROUTER, call the services of the server. A request has the frames
    /// `[method] [message]`, or `[method] [headers] [message]`, behind the empty frame of a REQ; its response has
    /// `[OK] [message]`, or the name of a status and its text.
    ///
    /// A type of peers has one local socket: the server does not start if a type is mapped twice.
    #[must_use]
    pub fn services(self, peers: impl IntoIterator<Item = SocketType>) -> Zmtp {
        self.with(|shared| shared.mapping.add(peers, Local::Services))
    }

    /// Sets the method of requests that are a message alone, `package.Service/Method`: the only frame that simple REQ
    /// programs send.
    #[must_use]
    pub fn default_method(self, method: impl Into<String>) -> Zmtp {
        self.with(|shared| shared.default_method = Some(method.into()))
    }

    /// Connects peers of these types, of REQ, DEALER and ROUTER, to a ROUTER of the application. Call it again for
    /// another ROUTER with other types.
    ///
    /// A type of peers has one local socket: the server does not start if a type is mapped twice.
    #[must_use]
    pub fn router(
        self,
        peers: impl IntoIterator<Item = SocketType>,
        options: ZmtpRouterOptions,
    ) -> (Zmtp, ZmtpRouter) {
        let (router, inlet) = ZmtpRouter::new(options);
        let zmtp = self.with(|shared| {
            shared.mapping.add(peers, Local::Router(shared.routers.len()));
            shared.routers.push(inlet);
        });
        (zmtp, router)
    }

    /// Connects peers of these types, of REP, DEALER and ROUTER, to a DEALER of the application, which sends each
    /// message to one of them: programs that connect to the server to work for it.
    ///
    /// A type of peers has one local socket: the server does not start if a type is mapped twice.
    #[must_use]
    pub fn dealer(
        self,
        peers: impl IntoIterator<Item = SocketType>,
        options: ZmtpRouterOptions,
    ) -> (Zmtp, ZmtpDealer) {
        let (router, inlet) = ZmtpRouter::new(options);
        let zmtp = self.with(|shared| {
            shared.mapping.add(peers, Local::Dealer(shared.routers.len()));
            shared.routers.push(inlet);
        });
        (zmtp, ZmtpDealer::new(router))
    }

    /// Sets the rules of topics; by default, all are open to every peer. The caller of a peer is that of its login by
    /// PLAIN, or of its key by CURVE; a peer without either has none. A message that a rule refuses is dropped. A
    /// subscription to a prefix is refused, and delivers nothing, if a topic that the peer may not read can have the
    /// prefix. Both are [counted](Self::refused). Messages of one frame, and jobs, follow the rules for their topics.
    ///
    /// Calls of services follow the rules of the server, and messages to a ROUTER or a DEALER of the application none.
    #[must_use]
    pub fn rules(self, rules: TopicRules) -> Zmtp {
        self.with(|shared| shared.rules = rules)
    }

    /// Refuses peers of these types, such as PUB where peers may only subscribe.
    #[must_use]
    pub fn without(self, peers: impl IntoIterator<Item = SocketType>) -> Zmtp {
        self.with(|shared| shared.mapping.refuse(peers))
    }

    /// Returns a subscription that shares the jobs with the PULL peers, for work inside the process: a job that it
    /// acknowledges goes to no peer. `None` without a [`pipeline`](Self::pipeline).
    pub fn member(&self) -> Option<Subscribe<'_, Bytes>> {
        Some(self.shared.pipeline.as_ref()?.member(&self.shared.bus))
    }

    /// Sets the limits on the input of each connection. The defaults are those of
    /// [`Limits`](switchboard_wire::zmtp::Limits), with `message_bytes_max` of the listener for frames and messages.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Zmtp {
        self.with(|shared| shared.limits = Some(limits))
    }

    /// Sets the limits of each engine.
    #[must_use]
    pub fn options(self, options: Options) -> Zmtp {
        self.with(|shared| shared.options = options)
    }

    /// Requires a username and a password of each peer, by the mechanism PLAIN. The `auth` of the server checks them
    /// as `authorization: Basic`; with the username `bearer`, the password is a token, `authorization: Bearer`. A peer
    /// that is refused gets an ERROR with a status of ZAP, and is closed. Calls of the peer carry the credentials.
    ///
    /// PLAIN sends the password unencrypted: use it inside TLS, or on connections that cannot be intercepted. The
    /// server does not start if it has no `auth`.
    #[must_use]
    pub fn plain(self) -> Zmtp {
        self.with(|shared| shared.is_plain = true)
    }

    /// Accepts peers without credentials on a server that checks the credentials of its callers. Such a server does not
    /// start without this call, [`plain`](Self::plain) or `curve`: all that reach its port can publish and subscribe.
    /// With `curve`, peers with any key are accepted.
    #[must_use]
    pub fn anonymous(self) -> Zmtp {
        self.with(|shared| shared.is_anonymous = true)
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> ZmtpStats {
        self.shared.counters.stats()
    }

    /// Returns the number of messages and subscriptions of peers that the [rules](Self::rules) or the bus refused, by
    /// the name of the status: `permission_denied` and `unauthenticated` for callers, `resource_exhausted` for rates
    /// and limits, `invalid_argument` for names, and others.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters.refusals()
    }

    /// Returns the number of connections that have ended, by reason: `peer` for those that the peer closed,
    /// `credentials` for refused logins, the rule that a peer broke, such as `mechanism`, `frame` or `limit`.
    pub fn closed(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters.reasons()
    }

    /// Checks that peers are authenticated if, and only if, the server can do so.
    fn check_auth(&self, has_auth: bool) -> std::result::Result<(), &'static str> {
        let Shared { is_plain, is_anonymous, ref curve, .. } = *self.shared;
        if curve.is_some() {
            return match (has_auth, is_plain, is_anonymous) {
                (_, true, _) => Err("Zmtp::plain and Zmtp::curve are two mechanisms: choose one"),
                (false, _, false) => Err(
                    "Zmtp::curve verifies the keys of peers, and the server checks no credentials: add Server::auth \
                     with auth::CurveKeys, or call Zmtp::anonymous to accept every key",
                ),
                _ => Ok(()),
            };
        }
        match (has_auth, is_plain, is_anonymous) {
            (true, false, false) => Err(
                "the server checks credentials, and peers of ZMTP send none: call Zmtp::plain for usernames and \
                 passwords, Zmtp::curve for keys, or Zmtp::anonymous to accept peers without them",
            ),
            (_, true, true) => Err(
                "Zmtp::plain requires credentials, and Zmtp::anonymous accepts peers without them: choose one",
            ),
            (false, true, _) => {
                Err("Zmtp::plain requires credentials, and the server checks none: add Server::auth")
            }
            _ => Ok(()),
        }
    }

    /// Adds limits and the mechanism to the settings of connections.
    fn settings(&self, listener: &switchboard_core::Limits, mapped: Settings) -> Settings {
        let limits = self.shared.limits.unwrap_or_else(|| {
            let bytes = listener.get(Limit::MessageBytesMax);
            Limits { frame_bytes_max: bytes, message_bytes_max: bytes, ..Limits::default() }
        });
        mapped.with_limits(limits).with_mechanism(self.mechanism())
    }

    fn mechanism(&self) -> Mechanism {
        match &self.shared.curve {
            Some(curve) => curve.clone(),
            None if self.shared.is_plain => Mechanism::PlainServer,
            None => Mechanism::Null,
        }
    }
}

impl Plugin for Zmtp {
    fn name(&self) -> &'static str {
        profiles::NAME
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&ZMTP]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.shared.counters.clone(), Arc::new(self.shared.bus.clone())]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        self.check_auth(context.has_auth).map_err(|why| invalid(why.to_owned()))?;
        let settings = self.settings(&context.limits, self.shared.mapping.settings().map_err(invalid)?);
        let mapping = self.shared.mapping.clone();
        let profile = Profile { mapping, settings: Arc::new(settings) };
        let profiles = Arc::new(Profiles::new(self.clone(), profile, &context.limits));
        let shared = self.shared.clone();
        // The group exists from the start: jobs wait for the first PULL peer.
        let group = shared.pipeline.as_ref().map(|pipeline| crate::feed::begin(pipeline.member(&shared.bus)));
        let group = group.transpose().map_err(|status| invalid(status.to_string()))?.map(Mutex::new);
        let services = context.services;
        let of_engine = profiles.clone();
        let make = move |handle| {
            let _kept = &group;
            ZmtpAdapter::new(shared.clone(), of_engine.clone(), services.clone(), handle)
        };
        let engines = Engines::new(self.shared.options, Some(context.memory), make)
            .with_counters(self.shared.counters.engines.clone());
        Ok(Arc::new(ZmtpServer::new(engines, self, profiles)))
    }
}
