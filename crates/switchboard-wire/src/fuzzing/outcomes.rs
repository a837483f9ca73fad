//! Outcomes of unary calls, on wires that respond in any order.

use super::Choices;
use crate::{
    Code, Input, Metadata, Outbox, Status,
    wire::{CallId, ClientCallId, ClientEvent, ClientWire, Push, ServerWire},
};
use bytes::Bytes;

/// Message of every failed call.
const WHY: &str = "test failure";

/// Events that a caller receives.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// The reply, or the code of an error.
    pub(super) end: Option<Result<Bytes, Code>>,
    pub(super) metadata: Metadata,
    /// A push from the server.
    pub(super) push: Option<Push>,
}

/// Ends a call with a random outcome; returns the events that its caller must receive.
pub(super) fn end(
    server: &mut impl ServerWire,
    at: CallId,
    message: Bytes,
    choices: &mut Choices<'_>,
    out: &mut Outbox,
) -> Outcome {
    let metadata = choices.metadata(4);
    let end = match choices.byte() % 3 {
        0 => {
            let code = Code::from_number(1 + u16::from(choices.byte() % 16));
            server.end(at, Err(&Status::new(code, WHY).with_metadata(metadata.clone())), out);
            Err(code)
        }
        1 => {
            server.reply_with(at, (&message).into(), false, &metadata, out);
            Ok(message)
        }
        _ => {
            server.head(at, &metadata, out);
            server.reply(at, (&message).into(), out);
            Ok(message)
        }
    };
    Outcome { end: Some(end), metadata, push: None }
}

/// Returns the events that the client receives until the call `id` has ended.
///
/// # Panics
/// If an event belongs to another call, or if the end is missing.
pub(super) fn receive(
    client: &mut impl ClientWire,
    id: ClientCallId,
    input: &mut Input,
    out: &mut Outbox,
) -> Outcome {
    let mut received = Outcome::default();
    while received.end.is_none() {
        if let Some((of, item)) = client.take_reply(input) {
            assert_eq!(of, id);
            received.end = Some(Ok(item));
            continue;
        }
        let event = client.recv(input, out).expect("a valid server").expect("a response");
        match event {
            ClientEvent::Pong => {}
            ClientEvent::Push(push) => received.push = Some(*push),
            ClientEvent::Head { id: of, metadata } if of == id => received.metadata = metadata,
            ClientEvent::Reply { id: of, item, compressed: false } if of == id => {
                received.end = Some(Ok(item));
            }
            ClientEvent::End { id: of, end: Err(status) } if of == id => {
                assert_eq!(status.message(), WHY);
                received.metadata = status.metadata().clone();
                received.end = Some(Err(status.code()));
            }
            event => panic!("{event:?}"),
        }
    }
    received
}
