//! Property of all client wires: no reply reaches another call, however many calls are abandoned and however late and
//! in whatever order the server replies to them.

use super::{Connection, Inner, Request, Task, wire::Wire};
use crate::client::{Channel, ClientMethod, calls::ABANDONED_MAX, pool::Pool};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};
use switchboard_core::{Limits, Result};
use switchboard_wire::{
    Code, Codec, Encoding, Input, Kind, Metadata, MethodInfo, MethodTable, Outbox, ServiceInfo, Status,
    baidu::{self, Layout},
    erpc, kiss, native, rpcx, thrift,
    wire::{CallId, CallIds, ClientCallId, ClientWire, ServerEvent, ServerWire},
};
#[cfg(feature = "http")]
use switchboard_wire::{Encodings, http2};

const METHODS: &[MethodInfo] = &[MethodInfo::new("1", Kind::Unary)];
static INFO: ServiceInfo = ServiceInfo { name: "kiss", methods: METHODS, descriptor: &[] };
static METHOD: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "kiss/1" };

/// Options of a channel, and the constructor of the server's state machine.
pub(super) type Pair = (&'static str, fn(Limits, Arc<MethodTable>) -> Box<dyn ServerWire>);

pub(super) const WIRES: &[Pair] = &[
    ("", |limits, table| Box::new(native::Server::new(limits.wire(), table))),
    ("?wire=baidu_std", |limits, table| Box::new(baidu::Server::new(limits.wire(), table))),
    ("?wire=erpc", |limits, table| Box::new(erpc::Server::new(limits.wire(), table))),
    ("?wire=erpc&framing=json", |limits, table| Box::new(erpc::Server::new(limits.wire(), table))),
    ("?wire=erpc&framing=proto", |limits, table| Box::new(erpc::Server::new(limits.wire(), table))),
    ("?wire=hulu&names=full&index=kiss/1:0", |limits, table| {
        Box::new(baidu::Server::new(limits.wire(), table).with_layout(Layout::Hulu))
    }),
    ("?wire=kiss", |limits, table| Box::new(kiss::Server::new(limits.wire(), table))),
    ("?wire=rpcx", |limits, table| Box::new(rpcx::Server::new(limits.wire(), table))),
    ("?wire=sofa", |limits, table| {
        Box::new(baidu::Server::new(limits.wire(), table).with_layout(Layout::Sofa))
    }),
    ("?wire=thrift", |limits, table| Box::new(thrift::Server::new(limits.wire(), table))),
    ("?wire=thrift&framed=false", |limits, table| Box::new(thrift::Server::new(limits.wire(), table))),
    ("?wire=thrift&protocol=header", |limits, table| Box::new(thrift::Server::new(limits.wire(), table))),
];

/// gRPC, whose calls wait in the machine when the server does not read.
#[cfg(feature = "http")]
pub(super) const GRPC: Pair = ("?wire=grpc&engine=own", |limits, table| {
    let (encodings, options) = (Encodings::NONE, http2::server::ServerOptions::default());
    Box::new(http2::server::Server::new(limits.wire(), table, encodings, options))
});

/// Returns every wire of this build.
fn all() -> Vec<Pair> {
    let mut all = WIRES.to_vec();
    #[cfg(feature = "http")]
    all.push(GRPC);
    all
}

/// A Thrift struct with one string, which other wires carry as opaque bytes.
fn message(number: usize) -> Bytes {
    let text = number.to_string();
    let mut bytes = vec![0x0B, 0, 1, 0, 0, 0, text.len() as u8];
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes.into()
}

/// A client's connection without a socket, a server's state machine, and the bytes between them.
pub(super) struct World {
    pub(super) options: &'static str,
    pub(super) connection: Arc<Connection>,
    codec: Codec,
    /// Never polled; dropping it ends the connection.
    _task: Task,
    server: Box<dyn ServerWire>,
    to_server: Input,
    replies: Outbox,
    to_client: Input,
    /// Calls that wait for their replies, with the number in their message.
    waiting: Vec<(ClientCallId, usize)>,
    /// Calls that the server has not replied to.
    at_server: VecDeque<(CallId, Bytes)>,
    opened: usize,
    seed: u64,
}

impl World {
    pub(super) fn new((options, server): &Pair, seed: u64) -> World {
        let channel = Channel::builder(&format!("memory://late-replies{options}")).lazy().unwrap();
        let Some(pool) = channel.0.pool() else { panic!("{options}: not a pool of connections") };
        let built = pool.options();
        let (io, _) = tokio::io::duplex(64);
        let address = "memory://test".parse().unwrap();
        let codec = built.codec(Codec::Proto);
        let (connection, task) = Connection::new(Box::new(io), &address, built, Weak::<Pool>::new());
        let mut table = MethodTable::default();
        table.add(&INFO).unwrap();
        World {
            options,
            connection,
            codec,
            _task: task,
            server: server(Limits::default(), Arc::new(table)),
            to_server: Input::default(),
            replies: Outbox::new(),
            to_client: Input::default(),
            waiting: Vec::new(),
            at_server: VecDeque::new(),
            opened: 0,
            seed,
        }
    }

    /// Restricts ids to few bits, so that they repeat within the test where the wire may repeat them.
    fn narrow(&self) {
        let mut inner = self.connection.lock();
        let ids = inner.wire.call_ids();
        let calls = mem::replace(&mut inner.calls, super::Calls::new(ids));
        inner.calls = match ids {
            CallIds::Reserved => calls.with_ids(0, 255),
            // They never repeat.
            CallIds::Streams => calls,
            CallIds::Canceled | CallIds::Wide => calls.with_ids(ids.mask() - 500, ids.mask()),
        };
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    fn open(&mut self) {
        let message = message(self.opened);
        let id = self.send(&message);
        self.waiting.push((id.unwrap_or_else(|status| panic!("{}: {status}", self.options)), self.opened));
        self.opened += 1;
    }

    pub(super) fn send(&self, message: &Bytes) -> Result<ClientCallId> {
        let request = Request {
            method: &METHOD,
            codec: self.codec,
            timeout: None,
            metadata: &Metadata::new(),
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        };
        self.connection.unary(&request, message.into(), Waker::noop())
    }

    fn abandon(&mut self, at: usize) {
        let (id, _) = self.waiting.swap_remove(at);
        self.connection.cancel(id);
    }

    /// Delivers the bytes that the client wrote.
    fn serve(&mut self) {
        let sent = self.connection.lock().out.take_all();
        self.to_server.extend(&sent);
        loop {
            match self.server.recv(&mut self.to_server, &mut self.replies).unwrap() {
                Some(ServerEvent::Open { id, first, .. }) => self.at_server.push_back((id, first.unwrap())),
                Some(ServerEvent::Cancel { id }) => self.at_server.retain(|(open, _)| *open != id),
                Some(ServerEvent::Refused { status, .. }) => panic!("{}: {status}", self.options),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Replies to a call: with its own message, or with an error that contains it.
    fn response(&mut self, at: usize) {
        let Some((id, message)) = self.at_server.remove(at) else { return };
        // THeader and others carry metadata beside a reply.
        let mut metadata = Metadata::new();
        metadata.insert("of", "a call").unwrap();
        match self.random(4) {
            0 if !self.options.contains("kiss") => {
                let text = format!("{message:?}");
                let status = Status::new(Code::Aborted, text);
                self.server.end(id, Err(&status), &mut self.replies);
            }
            1 => self.server.reply_with(id, (&message).into(), false, &metadata, &mut self.replies),
            _ => self.server.reply(id, (&message).into(), &mut self.replies),
        }
    }

    /// Delivers the bytes that the server wrote, and checks the results of callers.
    fn receive(&mut self) {
        self.to_client.extend(&self.replies.take_all());
        let mut inner = self.connection.lock();
        let fatal = inner.receive(&mut self.to_client, &mut Vec::new());
        assert!(fatal.is_none(), "{}: {fatal:?}", self.options);
        drop(inner);
        let context = Context::from_waker(Waker::noop());
        let (connection, options) = (&self.connection, self.options);
        self.waiting.retain(|(id, number)| match connection.poll_unary(*id, &context) {
            Poll::Pending => true,
            Poll::Ready(Ok(response)) => {
                assert_eq!(response.item.bytes, message(*number), "{options}: a reply of another call");
                false
            }
            Poll::Ready(Err(status)) => {
                let own = format!("{:?}", message(*number));
                assert!(status.message().contains(&own), "{options}: an error of another call: {status}");
                false
            }
        });
    }

    /// Number of ids in use: with few bits they must not run out.
    fn taken(&self) -> usize {
        self.with(|inner| inner.calls.len() + inner.calls.abandoned())
    }

    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Inner) -> R) -> R {
        look(&mut self.connection.lock())
    }
}

#[tokio::test]
async fn no_reply_reaches_another_call() {
    for pair in &all() {
        for seed in 0..4 {
            let mut world = World::new(pair, seed);
            world.narrow();
            for _ in 0..3000 {
                match world.random(8) {
                    0..=2 if world.taken() < 100 => world.open(),
                    3 | 4 if !world.waiting.is_empty() => {
                        let at = world.random(world.waiting.len());
                        world.abandon(at);
                    }
                    5 => world.serve(),
                    6 if !world.at_server.is_empty() => {
                        let at = world.random(world.at_server.len());
                        world.response(at);
                    }
                    _ => world.receive(),
                }
            }
            world.serve();
            while !world.at_server.is_empty() {
                world.response(0);
            }
            world.receive();
            assert!(world.waiting.is_empty(), "{}: calls without a reply", world.options);
            let left = world.with(|inner| (inner.calls.len(), inner.calls.abandoned()));
            assert_eq!(left, (0, 0), "{}", world.options);
        }
    }
}

/// The first call is abandoned, and 4095 others are opened and abandoned, while its reply is in flight.
#[tokio::test]
async fn a_reply_delayed_by_thousands_of_calls_reaches_no_other_call() {
    for pair in &all() {
        let mut world = World::new(pair, 7);
        world.open();
        world.serve();
        world.response(0);
        world.abandon(0);
        let mut opened = 0;
        while opened < 4095 {
            world.open();
            opened += 1;
            let (id, _) = world.waiting.pop().unwrap();
            // As after a reply: the id is free again.
            world.with(|inner| inner.calls.remove_unsent(id));
        }
        world.open();
        world.receive();
        assert_eq!(world.waiting.len(), 1, "{}: the reply reached another call", world.options);
    }
}

#[tokio::test]
async fn a_connection_is_replaced_after_too_many_abandoned_calls_without_a_reply() {
    for pair in &all() {
        let mut world = World::new(pair, 7);
        for _ in 0..=ABANDONED_MAX {
            assert!(world.connection.is_usable(), "{}", world.options);
            world.open();
            world.abandon(0);
        }
        let reserves = world.with(|inner| inner.wire.call_ids() == CallIds::Reserved);
        assert_eq!(world.connection.is_usable(), !reserves, "{}", world.options);
        let closed = world.with(|inner| inner.state.rejection().cloned());
        assert_eq!(closed.is_some(), reserves, "{}", world.options);
        if let Some(status) = closed {
            assert!(status.message().contains("1024 ids are reserved"), "{status}");
        }
        assert_eq!(world.with(|inner| matches!(inner.wire, Wire::Native(_))), world.options.is_empty());
    }
}
