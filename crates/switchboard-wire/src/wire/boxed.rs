//! Machines behind a pointer, for drivers that run several wires with one instance of their code.

use super::{CallId, Fatal, MachineMemory, Opened, Push, PushLimits, ServerEvent, ServerWire};
use crate::{Input, Metadata, Outbox, Outgoing, Status};
use bytes::Bytes;

/// Passes every call on, including those with a default.
impl<W: ServerWire + ?Sized> ServerWire for Box<W> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    #[inline]
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        (**self).next_call(input)
    }

    #[inline]
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        (**self).recv(input, out)
    }

    #[inline]
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        (**self).reply(id, item, out);
    }

    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        (**self).reply_parts(id, parts, out);
    }

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        (**self).reply_with(id, item, compressed, trailers, out);
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, out: &mut Outbox) {
        (**self).head(id, metadata, out);
    }

    fn item(&mut self, id: CallId, item: &Bytes, compressed: bool, out: &mut Outbox) {
        (**self).item(id, item, compressed, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        (**self).end(id, end, out);
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        (**self).credit(id, bytes, out);
    }

    fn ping(&mut self, out: &mut Outbox) {
        (**self).ping(out);
    }

    fn drain(&mut self, reason: &str, out: &mut Outbox) {
        (**self).drain(reason, out);
    }

    fn refuse(&mut self) {
        (**self).refuse();
    }

    fn send_window(&self) -> u32 {
        (**self).send_window()
    }

    fn pushes(&self) -> Option<PushLimits> {
        (**self).pushes()
    }

    fn push(&mut self, push: &Push, out: &mut Outbox) {
        (**self).push(push, out);
    }

    fn receive_window(&self, configured: u32) -> u32 {
        (**self).receive_window(configured)
    }

    fn advertises_windows(&self) -> bool {
        (**self).advertises_windows()
    }

    #[inline]
    fn unsent_response_bytes(&self) -> usize {
        (**self).unsent_response_bytes()
    }

    #[inline]
    fn waiting_bytes(&self) -> usize {
        (**self).waiting_bytes()
    }

    #[inline]
    fn is_blocked(&self, id: CallId) -> bool {
        (**self).is_blocked(id)
    }

    #[inline]
    fn at(&mut self, now_ms: u64) {
        (**self).at(now_ms);
    }

    fn memory(&self) -> MachineMemory {
        (**self).memory()
    }

    #[inline]
    fn holds_ends(&self) -> bool {
        (**self).holds_ends()
    }

    fn release_ends(&mut self, out: &mut Outbox) {
        (**self).release_ends(out);
    }

    fn take_at_most(&mut self, bytes: u32) {
        (**self).take_at_most(bytes);
    }

    fn responds_to_pings(&self) -> bool {
        (**self).responds_to_pings()
    }

    fn has_partial_calls(&self) -> bool {
        (**self).has_partial_calls()
    }

    fn close(&mut self, out: &mut Outbox) -> bool {
        (**self).close(out)
    }
}
