//! What a connection speaks: the native wire without a detour, or that of another framework.

use crate::call::no_attachments;
use bytes::Bytes;
use switchboard_wire::{
    Fatal, Input, Metadata, Outbox, Outgoing, SchemaId, Status,
    native::Client,
    wire::{CallId, ClientEvent, ClientWire, Encoding, Open},
};

pub(super) enum Wire {
    Native(Client),
    Foreign(Box<dyn ClientWire>),
}

/// Hands a call to the machine that is there.
macro_rules! either {
    ($wire:expr, $machine:ident => $call:expr) => {
        match $wire {
            Wire::Native($machine) => $call,
            Wire::Foreign($machine) => $call,
        }
    };
}

impl Wire {
    /// Whether there is a place for everything in the metadata of a call.
    #[inline]
    pub(super) fn check(&self, metadata: &Metadata) -> Result<(), Status> {
        match metadata.attachment() {
            Some(_) if !self.carries_attachments() => Err(no_attachments(self.name())),
            _ => Ok(()),
        }
    }
}

impl ClientWire for Wire {
    fn name(&self) -> &'static str {
        either!(self, machine => machine.name())
    }

    fn greet(&mut self, out: &mut Outbox) {
        either!(self, machine => machine.greet(out));
    }

    fn method(&mut self, number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox) {
        either!(self, machine => machine.method(number, name, schema, out));
    }

    fn streams(&mut self, number: u16) {
        either!(self, machine => machine.streams(number));
    }

    fn index(&mut self, number: u16, index: u16) {
        either!(self, machine => machine.index(number, index));
    }

    #[inline]
    fn open(
        &mut self,
        id: CallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        either!(self, machine => machine.open(id, open, first, out))
    }

    #[inline]
    fn item(&mut self, id: CallId, item: &Bytes, compressed: bool, out: &mut Outbox) -> Result<(), Status> {
        either!(self, machine => machine.item(id, item, compressed, out))
    }

    fn half_close(&mut self, id: CallId, out: &mut Outbox) {
        either!(self, machine => machine.half_close(id, out));
    }

    fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        either!(self, machine => machine.cancel(id, out));
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        either!(self, machine => machine.credit(id, bytes, out));
    }

    fn ping(&mut self, out: &mut Outbox) {
        either!(self, machine => machine.ping(out));
    }

    fn answers_pings(&self) -> bool {
        either!(self, machine => machine.answers_pings())
    }

    #[inline]
    fn calls_max(&self) -> u32 {
        either!(self, machine => machine.calls_max())
    }

    #[inline]
    fn methods_max(&self) -> u16 {
        either!(self, machine => machine.methods_max())
    }

    fn knows_server(&self) -> bool {
        either!(self, machine => machine.knows_server())
    }

    fn takes(&self, encoding: Encoding) -> bool {
        either!(self, machine => machine.takes(encoding))
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

    fn receive_window(&self, told: u32) -> u32 {
        either!(self, machine => machine.receive_window(told))
    }

    fn carries_attachments(&self) -> bool {
        either!(self, machine => machine.carries_attachments())
    }

    #[inline(always)]
    fn next_reply(&mut self, input: &mut Input) -> Option<(CallId, usize)> {
        either!(self, machine => machine.next_reply(input))
    }

    #[inline]
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        either!(self, machine => machine.recv(input, out))
    }
}
