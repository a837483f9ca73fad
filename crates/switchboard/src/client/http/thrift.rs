//! Thrift by POST: a message without a frame, and the reply in the answer.

use super::{
    codes,
    head::OutgoingRequest,
    json_rpc::AROUND,
    link::InFlight,
    settings::Terms,
    unary::{REFUSAL_LEAST, post, whole, with_head},
};
use crate::{Code, Metadata, Result, client::calls, http::thrift};
use ::http::StatusCode;
use bytes::Bytes;
use switchboard_wire::{
    Input, Limits, Outbox,
    thrift::{Client, Framing, Settings},
    wire::{ClientEvent, ClientWire, Encoding, Open},
};

/// The number of the only call of a machine.
const ID: u32 = 1;

/// Sends one call and waits for its answer; dropped before, the server is told.
///
/// # Errors
/// Why the call failed, with the metadata of the answer.
pub(super) async fn call(
    terms: Terms,
    link: &InFlight,
    call: OutgoingRequest<'_>,
    message: &Bytes,
) -> Result<calls::Answer> {
    let link = link.link();
    let mut machine = machine(&terms);
    let mut out = Outbox::new();
    machine.method(0, call.method.path, None, &mut out);
    let open = Open {
        method: 0,
        codec: call.codec,
        timeout: None,
        // Which is in the headers.
        metadata: &Metadata::new(),
        oneway: call.oneway,
        more: false,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    };
    machine.open(ID, open, Some(message.into()), &mut out)?;
    let (headers, mut body) = post(&terms, link, call, out.take_all().into()).await?;
    let head = codes::metadata(&headers, &terms.metadata)?;
    let bytes_max = terms.message_bytes_max.saturating_add(AROUND).max(REFUSAL_LEAST);
    let reply = whole(&mut body, link, bytes_max).await?;
    if call.oneway {
        return Ok(calls::Answer { item: Bytes::new().into(), head, trailers: Metadata::new(), attempts: 1 });
    }
    let mut input = Input::default();
    input.extend(&reply);
    let why = match machine.recv(&mut input, &mut out) {
        Ok(Some(ClientEvent::Reply { item, .. })) => {
            return Ok(calls::Answer { item: item.into(), head, trailers: Metadata::new(), attempts: 1 });
        }
        Ok(Some(ClientEvent::End { end: Err(status), .. })) => return Err(with_head(status, head)),
        Ok(_) => "the answer ends in the middle of a message".to_owned(),
        Err(fatal) => fatal.to_string(),
    };
    Err(match thrift::is_typed(&headers) {
        true => codes::from_path(Code::Internal, why),
        // Of a proxy, or of a server that speaks something else.
        false => codes::foreign(StatusCode::OK, &headers, call.content_type(&terms)?, link.peer()),
    })
}

/// A connection of Thrift that has one call.
fn machine(terms: &Terms) -> Client {
    let mut limits = Limits::default();
    limits.message_bytes_max = u32::try_from(terms.message_bytes_max).unwrap_or(u32::MAX);
    Client::new(limits, Settings { framing: Framing::Unframed, ..terms.thrift })
}
