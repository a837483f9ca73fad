//! How unary calls end, on wires that answer in any order.

use super::Choices;
use crate::{
    Code, Input, Metadata, Outbox, Status,
    wire::{CallId, ClientEvent, ClientWire, Push, ServerWire},
};
use bytes::Bytes;

/// What every failed call says.
const WHY: &str = "why: it is so";

/// What a caller gets to hear.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
    /// The reply, or the code of an error.
    pub(super) end: Option<Result<Bytes, Code>>,
    pub(super) metadata: Metadata,
    /// What nobody asked for.
    pub(super) push: Option<Push>,
}

/// Ends a call in one of the ways that there are; what its caller has to hear of it.
pub(super) fn end(
    server: &mut impl ServerWire,
    at: CallId,
    message: Bytes,
    choices: &mut Choices<'_>,
    out: &mut Outbox,
) -> Heard {
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
    Heard { end: Some(end), metadata, push: None }
}

/// What the client hears until the call `id` has ended.
///
/// # Panics
/// When that is of another call, or not all of it there.
pub(super) fn listen(client: &mut impl ClientWire, id: CallId, input: &mut Input, out: &mut Outbox) -> Heard {
    let mut heard = Heard::default();
    while heard.end.is_none() {
        if let Some((of, item)) = client.take_reply(input) {
            assert_eq!(of, id);
            heard.end = Some(Ok(item));
            continue;
        }
        let event = client.recv(input, out).expect("a server of ours").expect("an answer");
        match event {
            ClientEvent::Pong => {}
            ClientEvent::Push(push) => heard.push = Some(*push),
            ClientEvent::Head { id: of, metadata } if of == id => heard.metadata = metadata,
            ClientEvent::Reply { id: of, item, compressed: false } if of == id => heard.end = Some(Ok(item)),
            ClientEvent::End { id: of, end: Err(status) } if of == id => {
                assert_eq!(status.message(), WHY);
                heard.metadata = status.metadata().clone();
                heard.end = Some(Err(status.code()));
            }
            event => panic!("{event:?}"),
        }
    }
    heard
}
