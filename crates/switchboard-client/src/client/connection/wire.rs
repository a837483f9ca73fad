//! The wire of a connection: the native one, called statically, or that of another framework.

use bytes::Bytes;
use switchboard_core::call::no_attachments;
use switchboard_wire::{
    Fatal, Input, Kind, Metadata, Outbox, Outgoing, SchemaId, Status,
    native::Client,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Open},
};

pub(super) enum Wire {
    Native(Client),
    Dyn(Box<dyn ClientWire>),
}

/// Calls the method of the current variant.
macro_rules! either {
    ($wire:expr, $machine:ident => $call:expr) => {
        match $wire {
            Wire::Native($machine) => $call,
            Wire::Dyn($machine) => $call,
        }
    };
}

impl Wire {
    /// Checks that the wire can carry everything in the metadata of a call.
    #[inline]
    pub(super) fn check(&self, metadata: &Metadata) -> Result<(), Status> {
        match metadata.attachment() {
            Some(_) if !self.carries_attachments() => Err(no_attachments(self.name())),
            _ => Ok(()),
        }
    }
}

/// Functions of the path of a call are always inlined: each is a choice between two calls.
impl ClientWire for Wire {
    fn name(&self) -> &'static str {
        either!(self, machine => machine.name())
    }

    fn greet(&mut self, out: &mut Outbox) {
        either!(self, machine => machine.greet(out));
    }

    fn call_ids(&self) -> CallIds {
        either!(self, machine => machine.call_ids())
    }

    #[inline(always)]
    fn has_events(&self) -> bool {
        either!(self, machine => machine.has_events())
    }

    #[inline(always)]
    fn queued_bytes(&self) -> usize {
        either!(self, machine => machine.queued_bytes())
    }

    fn method(&mut self, number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox) {
        either!(self, machine => machine.method(number, name, schema, out));
    }

    fn streams(&mut self, number: u16, kind: Kind) {
        either!(self, machine => machine.streams(number, kind));
    }

    fn index(&mut self, number: u16, index: u16) {
        either!(self, machine => machine.index(number, index));
    }

    #[inline(always)]
    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        either!(self, machine => machine.open(id, open, first, out))
    }

    #[inline(always)]
    fn item(
        &mut self,
        id: ClientCallId,
        item: &Bytes,
        compressed: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        either!(self, machine => machine.item(id, item, compressed, out))
    }

    #[inline(always)]
    fn is_blocked(&self, id: ClientCallId) -> bool {
        either!(self, machine => machine.is_blocked(id))
    }

    fn refuses_pings(&self) -> bool {
        either!(self, machine => machine.refuses_pings())
    }

    fn may_refuse_sent_calls(&self) -> bool {
        either!(self, machine => machine.may_refuse_sent_calls())
    }

    fn half_close(&mut self, id: ClientCallId, out: &mut Outbox) {
        either!(self, machine => machine.half_close(id, out));
    }

    fn cancel(&mut self, id: ClientCallId, out: &mut Outbox) {
        either!(self, machine => machine.cancel(id, out));
    }

    fn credit(&mut self, id: ClientCallId, bytes: u32, out: &mut Outbox) {
        either!(self, machine => machine.credit(id, bytes, out));
    }

    fn ping(&mut self, out: &mut Outbox) {
        either!(self, machine => machine.ping(out));
    }

    fn responds_to_pings(&self) -> bool {
        either!(self, machine => machine.responds_to_pings())
    }

    #[inline(always)]
    fn calls_max(&self) -> u32 {
        either!(self, machine => machine.calls_max())
    }

    #[inline(always)]
    fn methods_max(&self) -> u16 {
        either!(self, machine => machine.methods_max())
    }

    fn knows_server(&self) -> bool {
        either!(self, machine => machine.knows_server())
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        either!(self, machine => machine.accepts(encoding))
    }

    fn compresses_streams(&self) -> bool {
        either!(self, machine => machine.compresses_streams())
    }

    fn message_bytes_max(&self) -> u32 {
        either!(self, machine => machine.message_bytes_max())
    }

    fn send_window(&self) -> u32 {
        either!(self, machine => machine.send_window())
    }

    fn receive_window(&self, advertised: u32) -> u32 {
        either!(self, machine => machine.receive_window(advertised))
    }

    fn advertises_windows(&self) -> bool {
        either!(self, machine => machine.advertises_windows())
    }

    fn enforces_windows(&self) -> bool {
        either!(self, machine => machine.enforces_windows())
    }

    fn carries_attachments(&self) -> bool {
        either!(self, machine => machine.carries_attachments())
    }

    #[inline(always)]
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        either!(self, machine => machine.next_reply(input))
    }

    #[inline(always)]
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        either!(self, machine => machine.recv(input, out))
    }
}
