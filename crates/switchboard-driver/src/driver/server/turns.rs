//! Tests of the limits of one turn of a connection, and of the memory it charges for messages.
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

use super::*;
use crate::serving::{Live, ServerParts, Sources};
use bytes::Bytes;
use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use switchboard_core::{
    Call, Extensions, Reply, Service,
    access::Access,
    compression::{Message, Serving},
    flags::Flags,
    queue::Items,
};
use switchboard_guard::{
    dispatch::{Guarded, GuardedService},
    guard::Guards,
};
use switchboard_wire::{
    Input, Kind, Metadata, MethodInfo, MethodTable, Outgoing, ServiceInfo, Status, WireSet,
    native::{self, Client},
    wire::{CallId, ClientCallId, ClientWire, Codec, Encoding, Fatal, MachineMemory, Open, ServerEvent},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of units after which a test fails because the neighbour has not run.
const UNITS_MAX: u64 = 3_000_000;

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Turns",
    methods: &[MethodInfo::new("Flood", Kind::ServerStream), MethodInfo::new("Unread", Kind::Bidi)],
    descriptor: &[],
};

/// A neighbour task on the same worker, which needs one poll.
#[derive(Clone, Default)]
struct Neighbour(Arc<AtomicBool>);

impl Neighbour {
    fn had_its_turn(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Service with endless streams until the neighbour has run, and with calls that read nothing.
#[derive(Clone, Default)]
struct Turns {
    neighbour: Neighbour,
    made: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Service for Turns {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply, Status> {
        if call.method() == 0 {
            return Ok(Reply::many(Box::pin(Flood(self.clone()))));
        }
        // Dropping the reader closes the queue.
        let (requests, _cx) = call.into_many();
        requests.0.close(Status::canceled("the reader of the stream has gone"));
        std::future::pending().await
    }
}

struct Flood(Turns);

impl Items for Flood {
    fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        let Turns { neighbour, made, ended } = &self.0;
        if neighbour.had_its_turn() || made.fetch_add(1, Ordering::Relaxed) == UNITS_MAX {
            ended.store(true, Ordering::Relaxed);
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Message::from(Bytes::from_static(&[7; 1000])))))
    }

    fn queued_bytes(&self) -> usize {
        0
    }

    fn head(&self) -> Metadata {
        Metadata::new()
    }

    fn trailers(&self) -> Metadata {
        Metadata::new()
    }
}

/// A peer that reads everything and sends nothing; keeps what was written last.
#[derive(Clone, Default)]
struct Greedy(Arc<Mutex<Vec<u8>>>);

impl Io for Greedy {}

impl AsyncRead for Greedy {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Greedy {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        *self.0.lock().unwrap() = bytes.to_vec();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A machine that always has one more event.
struct Endless {
    neighbour: Neighbour,
    handled: Arc<AtomicU64>,
}

impl ServerWire for Endless {
    fn name(&self) -> &'static str {
        "native"
    }

    fn recv(&mut self, _input: &mut Input, _out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        let gives_up = self.handled.fetch_add(1, Ordering::Relaxed) == UNITS_MAX;
        let ends = gives_up || self.neighbour.had_its_turn();
        Ok(Some(if ends { ServerEvent::Closed } else { ServerEvent::Handled }))
    }

    fn reply(&mut self, _id: CallId, _item: Outgoing<'_>, _out: &mut Outbox) {}

    fn reply_with(
        &mut self,
        _id: CallId,
        _item: Outgoing<'_>,
        _compressed: bool,
        _trailers: &Metadata,
        _out: &mut Outbox,
    ) {
    }

    fn head(&mut self, _id: CallId, _metadata: &Metadata, _out: &mut Outbox) {}

    fn end(&mut self, _id: CallId, _end: Result<&Metadata, &Status>, _out: &mut Outbox) {}

    fn refuse(&mut self) {}

    fn memory(&self) -> MachineMemory {
        MachineMemory::default()
    }
}

/// A machine without calls that writes a farewell, and may hold a request that is not complete.
struct Farewell {
    is_partial: bool,
}

impl ServerWire for Farewell {
    fn name(&self) -> &'static str {
        "native"
    }

    fn recv(&mut self, _input: &mut Input, _out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        Ok(None)
    }

    fn reply(&mut self, _id: CallId, _item: Outgoing<'_>, _out: &mut Outbox) {}

    fn reply_with(
        &mut self,
        _id: CallId,
        _item: Outgoing<'_>,
        _compressed: bool,
        _trailers: &Metadata,
        _out: &mut Outbox,
    ) {
    }

    fn head(&mut self, _id: CallId, _metadata: &Metadata, _out: &mut Outbox) {}

    fn end(&mut self, _id: CallId, _end: Result<&Metadata, &Status>, _out: &mut Outbox) {}

    fn refuse(&mut self) {}

    fn memory(&self) -> MachineMemory {
        MachineMemory::default()
    }

    fn has_partial_calls(&self) -> bool {
        self.is_partial
    }

    fn close(&mut self, out: &mut Outbox) -> bool {
        out.put(Outgoing::Lent(b"farewell"));
        false
    }
}

/// Creates a connection that has read `input`.
fn connection<W: ServerWire>(state: &Arc<ServerState>, input: &[u8], wire: W) -> Connection<W> {
    connection_to(Greedy::default(), state, input, wire)
}

fn connection_to<W: ServerWire>(
    io: Greedy,
    state: &Arc<ServerState>,
    input: &[u8],
    wire: W,
) -> Connection<W> {
    let peer = Peer::without_connection(switchboard_wire::WireId::NATIVE, "memory".into());
    let (shared, settings) = (state.clone(), Arc::default());
    let (io, input) = (Box::new(io), BytesMut::from(input));
    let accepted = Accepted { io, input, peer, settings, shared, wakes: Arc::default(), shard: 0 };
    Connection::new(accepted, wire)
}

fn on_one_thread(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Creates the state of a server with this service.
fn serve(turns: &Turns) -> Arc<ServerState> {
    let mut table = MethodTable::default();
    table.add(&INFO).unwrap();
    let guarding = Guards::default().build(&table, false).unwrap();
    let limits = switchboard_core::Limits::default();
    Arc::new(ServerState::new(ServerParts {
        services: vec![Guarded::new(turns.clone()).guarded(guarding.chain(0))],
        table: Arc::new(table),
        guarding,
        wires: WireSet::built_in(),
        live: Live::new(&limits),
        limits,
        flags: Flags::default(),
        access: Access::default(),
        compression: Serving::default(),
        strict_fields: false,
        extensions: Extensions::default(),
        counts_sockets: false,
        sources: Sources::default(),
    }))
}

/// Encodes a call to `method` as a client would.
fn request(client: &mut Client, method: u16, id: ClientCallId, more: bool) -> Vec<u8> {
    let (metadata, mut out) = (Metadata::new(), Outbox::new());
    if id == 1 {
        client.greet(&mut out);
        client.method(
            method,
            &format!("test.Turns/{}", INFO.methods[usize::from(method)].name),
            None,
            &mut out,
        );
    }
    let open = Open {
        method,
        codec: Codec::Json,
        timeout: None,
        metadata: &metadata,
        oneway: false,
        more,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    };
    let first = (!more).then_some(Outgoing::Lent(b"{}"));
    client.open(id, open, first, &mut out).unwrap();
    client.credit(id, u32::MAX, &mut out);
    out.take_all()
}

#[test]
fn neighbours_have_their_turns_while_a_machine_has_always_more() {
    on_one_thread(async {
        let state = serve(&Turns::default());
        let (neighbour, handled) = (Neighbour::default(), Arc::new(AtomicU64::new(0)));
        let wire = Endless { neighbour: neighbour.clone(), handled: handled.clone() };
        let connection = tokio::spawn(connection(&state, b"x", wire));
        let beside = neighbour.clone();
        tokio::spawn(async move { beside.0.store(true, Ordering::Relaxed) }).await.unwrap();
        connection.await.unwrap();
        assert!(handled.load(Ordering::Relaxed) < UNITS_MAX, "the neighbour had no turn");
    });
}

#[test]
fn neighbours_have_their_turns_while_streams_are_always_ready() {
    on_one_thread(async {
        let turns = Turns::default();
        let state = serve(&turns);
        let mut client = Client::new(Limits::default());
        let input: Vec<u8> = (1..=20).flat_map(|id| request(&mut client, 0, id, false)).collect();
        let wire = native::Server::new(Limits::default(), state.table.clone());
        let connection = tokio::spawn(connection(&state, &input, wire));
        let beside = turns.neighbour.clone();
        tokio::spawn(async move { beside.0.store(true, Ordering::Relaxed) }).await.unwrap();
        while !turns.ended.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        connection.abort();
        assert!(turns.made.load(Ordering::Relaxed) < UNITS_MAX, "the neighbour had no turn");
    });
}

#[test]
fn streams_wait_for_room_once_each_and_all_end() {
    on_one_thread(async {
        let turns = Turns::default();
        let state = serve(&turns);
        let mut client = Client::new(Limits::default());
        let input: Vec<u8> = (1..=500).flat_map(|id| request(&mut client, 0, id, false)).collect();
        let wire = native::Server::new(Limits::default(), state.table.clone());
        let mut connection = connection(&state, &input, wire);
        let mut most = 0;
        for _ in 0..3 {
            let _ = connection.turn(&mut Context::from_waker(Waker::noop()));
            most = most.max(connection.stalled.len());
            assert!(connection.stalled.len() <= connection.calls.len());
            tokio::task::yield_now().await;
        }
        assert!(most > 1, "none waited");
        turns.neighbour.0.store(true, Ordering::Relaxed);
        while connection.calls.len() > 0 {
            let _ = connection.turn(&mut Context::from_waker(Waker::noop()));
            tokio::task::yield_now().await;
        }
        assert_eq!(connection.memory.calls, 0);
    });
}

#[test]
fn unread_messages_of_a_dropped_reader_hold_nothing() {
    on_one_thread(async {
        let state = serve(&Turns::default());
        let mut client = Client::new(Limits::default());
        let mut input = request(&mut client, 1, 1, true);
        let (item, mut out) = (Bytes::from_static(&[7; 1000]), Outbox::new());
        for _ in 0..200 {
            client.item(1, &item, false, &mut out).unwrap();
        }
        input.extend(out.take_all());
        let wire = native::Server::new(Limits::default(), state.table.clone());
        let mut connection = connection(&state, &input, wire);
        let _ = connection.turn(&mut Context::from_waker(Waker::noop()));
        assert_eq!((connection.calls.len(), connection.input.len()), (1, 0));
        let held = connection.memory.calls;
        assert!(held < 2000, "{held} bytes of messages that were dropped");
    });
}

#[test]
fn the_last_bytes_of_a_drained_connection_are_written() {
    on_one_thread(async {
        let (state, peer) = (serve(&Turns::default()), Greedy::default());
        let mut connection = connection_to(peer.clone(), &state, b"", Farewell { is_partial: false });
        connection.state =
            ConnectionState::Draining { since: connection.now.checked_sub(2 * LINGER).unwrap() };
        assert!(connection.turn(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(*peer.0.lock().unwrap(), b"farewell");
        assert!(connection.turn(&mut Context::from_waker(Waker::noop())).is_ready());
    });
}

#[test]
fn a_drained_connection_stays_open_for_a_request_that_has_begun() {
    on_one_thread(async {
        let state = serve(&Turns::default());
        let mut connection = connection(&state, b"", Farewell { is_partial: true });
        connection.state =
            ConnectionState::Draining { since: connection.now.checked_sub(2 * LINGER).unwrap() };
        for _ in 0..2 {
            assert!(connection.turn(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(matches!(connection.state, ConnectionState::Draining { .. }));
        }
        state.ending.store(true, Ordering::Relaxed);
        let _ = connection.turn(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(connection.state, ConnectionState::Closing { .. }));
    });
}
