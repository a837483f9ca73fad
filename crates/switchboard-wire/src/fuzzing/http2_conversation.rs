//! The client machine of gRPC on HTTP/2 against the server machine.

use super::{
    Choices,
    feed::client_event,
    http2_client::{BIDI, UNARY, client, open},
};
use crate::{
    Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Retry, ServiceInfo, Status,
    http2::{
        client::Client,
        server::{Server, ServerOptions},
    },
    wire::{CallId, ClientCallId, ClientEvent, ClientWire, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

static INFO: ServiceInfo = ServiceInfo {
    name: "a.B",
    methods: &[MethodInfo::new("One", Kind::Unary), MethodInfo::new("Both", Kind::Bidi)],
    descriptor: &[],
};

/// Checks that every call between a client machine and a server machine ends once, with the right messages and the
/// right status, for any windows, pieces, cancellations and order of commands.
///
/// # Panics
/// If the property does not hold.
pub fn http2_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut pair = Pair::new(&mut choices);
    while !choices.is_over() {
        match choices.byte() % 16 {
            0..=3 => pair.begin(&mut choices),
            4..=6 => pair.send(&mut choices),
            7 => pair.cancel(&mut choices),
            8 | 9 => {
                pair.respond(&mut choices);
            }
            10..=12 => pair.deliver_to_server(usize::from(choices.short())),
            _ => pair.deliver_to_client(usize::from(choices.short())),
        }
    }
    for _ in 0..200 {
        pair.half_close_all();
        pair.deliver_to_server(usize::MAX);
        while pair.respond(&mut choices) {}
        pair.deliver_to_client(usize::MAX);
    }
    assert!(pair.calls.is_empty(), "calls without an end: {:?}", pair.calls);
    assert_eq!((pair.client.queued_bytes(), pair.server.waiting_bytes()), (0, 0));
    assert_eq!(pair.server.memory().calls, 0);
}

/// Expectation of the caller of a call.
#[derive(Debug, Default)]
struct Call {
    is_unary: bool,
    has_ended: bool,
    /// Messages that the caller has sent and not received back.
    messages: VecDeque<Bytes>,
}

struct Pair {
    client: Client,
    server: Server,
    to_server: Flight,
    to_client: Flight,
    next: ClientCallId,
    /// Number of calls that began before the settings of the server arrived.
    early: ClientCallId,
    calls: HashMap<ClientCallId, Call>,
    /// Unary calls that the server has not responded to, with their message.
    at_server: Vec<(CallId, Bytes)>,
    /// Streams that have not ended at the server.
    streams: HashSet<CallId>,
}

/// Bytes in flight.
#[derive(Default)]
struct Flight {
    out: Outbox,
    bytes: VecDeque<u8>,
    input: Input,
}

impl Flight {
    fn fly(&mut self, bytes: usize) {
        self.bytes.extend(self.out.take_all());
        let arrived: Vec<u8> = self.bytes.drain(..bytes.min(self.bytes.len())).collect();
        self.input.extend(&arrived);
    }
}

impl Pair {
    fn new(choices: &mut Choices<'_>) -> Pair {
        let mut table = MethodTable::default();
        table.add(&INFO).expect("one service");
        let stream_window_bytes = 1 + (u32::from(choices.byte()) << (choices.byte() % 12));
        let calls_max = 1 + u32::from(choices.byte() % 8);
        let client_limits = Limits { stream_window_bytes, ..Limits::default() };
        let server_limits = Limits { calls_max, ..Limits::default() };
        let mut to_server = Flight::default();
        Pair {
            client: client(client_limits, &mut to_server.out),
            server: Server::new(server_limits, Arc::new(table), Encodings::ALL, ServerOptions::default()),
            to_server,
            to_client: Flight::default(),
            next: 0,
            early: 0,
            calls: HashMap::new(),
            at_server: Vec::new(),
            streams: HashSet::new(),
        }
    }

    fn begin(&mut self, choices: &mut Choices<'_>) {
        let (id, is_unary) = (self.next, choices.one_in(2));
        self.next += 1;
        if !self.client.knows_server() {
            self.early = self.next;
        }
        let message = is_unary.then(|| choices.message());
        let method = if is_unary { UNARY } else { BIDI };
        open(&mut self.client, id, method, message.as_ref(), &mut self.to_server.out);
        let messages = message.into_iter().collect();
        self.calls.insert(id, Call { is_unary, has_ended: is_unary, messages });
    }

    fn pick(&self, choices: &mut Choices<'_>) -> Option<ClientCallId> {
        let mut ids: Vec<_> = self.calls.keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[usize::from(choices.byte()) % ids.len()])
    }

    fn send(&mut self, choices: &mut Choices<'_>) {
        let Some(id) = self.pick(choices) else { return };
        let Some(call) = self.calls.get_mut(&id).filter(|call| !call.has_ended) else { return };
        if choices.one_in(4) {
            call.has_ended = true;
            return self.client.half_close(id, &mut self.to_server.out);
        }
        let message = choices.message();
        self.client.item(id, &message, false, &mut self.to_server.out).expect("a valid message");
        call.messages.push_back(message);
    }

    /// Returns true for a call that may have been sent before the settings of the server arrived.
    fn is_early(&self, id: ClientCallId) -> bool {
        id < self.early
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        if let Some(id) = self.pick(choices).filter(|_| choices.one_in(4)) {
            self.calls.remove(&id);
            self.client.cancel(id, &mut self.to_server.out);
        }
    }

    fn half_close_all(&mut self) {
        for (id, call) in &mut self.calls {
            if !std::mem::replace(&mut call.has_ended, true) {
                self.client.half_close(*id, &mut self.to_server.out);
            }
        }
    }

    /// Responds to one unary call at the server; a message that ends in a byte below 32 gets a status.
    fn respond(&mut self, choices: &mut Choices<'_>) -> bool {
        if self.at_server.is_empty() {
            return false;
        }
        let at = usize::from(choices.byte()) % self.at_server.len();
        let (id, message) = self.at_server.swap_remove(at);
        let out = &mut self.to_client.out;
        if is_refused(&message) {
            self.server.end(id, Err(&Status::not_found("gone")), out);
        } else {
            self.server.reply(id, (&message).into(), out);
        }
        true
    }

    fn deliver_to_server(&mut self, bytes: usize) {
        self.to_server.fly(bytes);
        // Time passes, so that canceled calls do not exhaust the budget of the server.
        self.server.at(u64::MAX / 2);
        loop {
            let event = self.server.recv(&mut self.to_server.input, &mut self.to_client.out);
            match event.expect("the client follows the protocol") {
                None => return,
                Some(ServerEvent::Open { id, first: Some(first), more: false, .. }) => {
                    self.at_server.push((id, first));
                }
                Some(ServerEvent::Open { id, first, more, .. }) => {
                    assert!(first.is_none());
                    self.server.head(id, &Metadata::new(), &mut self.to_client.out);
                    if more {
                        self.streams.insert(id);
                    } else {
                        self.server.end(id, Ok(&Metadata::new()), &mut self.to_client.out);
                    }
                }
                Some(ServerEvent::Item { id, item, .. }) => {
                    self.server.credit(id, item.len().max(1) as u32, &mut self.to_client.out);
                    self.server.item(id, &item, false, &mut self.to_client.out);
                }
                Some(ServerEvent::HalfClose { id }) => {
                    if self.streams.remove(&id) {
                        self.server.end(id, Ok(&Metadata::new()), &mut self.to_client.out);
                    }
                }
                Some(ServerEvent::Cancel { id }) => {
                    self.streams.remove(&id);
                    self.at_server.retain(|(known, _)| *known != id);
                }
                Some(ServerEvent::Refused { id, status }) => panic!("{id}: {status}"),
                Some(_) => {}
            }
        }
    }

    fn deliver_to_client(&mut self, bytes: usize) {
        self.to_client.fly(bytes);
        loop {
            let (input, out) = (&mut self.to_client.input, &mut self.to_server.out);
            let event = client_event(&mut self.client, true, input, out);
            let Some(event) = event.expect("the server follows the protocol") else { return };
            self.client_event(event);
        }
    }

    fn client_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Reply { id, item, compressed } => {
                let call = self.calls.remove(&id).expect("a call that was not canceled");
                assert!(call.is_unary && !compressed);
                assert_eq!(call.messages, [item]);
            }
            ClientEvent::Item { id, item, .. } => {
                let call = self.calls.get_mut(&id).expect("a call that was not canceled");
                assert!(!call.is_unary);
                assert_eq!(call.messages.pop_front().as_ref(), Some(&item));
                self.client.credit(id, item.len().max(1) as u32, &mut self.to_server.out);
            }
            ClientEvent::End { id, end } => {
                let call = self.calls.remove(&id).expect("a call that was not canceled");
                match end {
                    Ok(_) => assert!(call.messages.is_empty() && call.has_ended && !call.is_unary),
                    // Calls that were sent before the settings of the server may be too many.
                    Err(status) if status.retry() == Retry::Safe => assert!(self.is_early(id), "{status}"),
                    Err(status) => {
                        assert_eq!(status.message(), "gone", "{status}");
                        assert!(is_refused(&call.messages[0]));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns true for messages that the server responds to with a status.
fn is_refused(message: &Bytes) -> bool {
    message.last().is_some_and(|last| *last < 32)
}
