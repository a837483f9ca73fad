//! Thrift by POST: an unframed message as request, and the reply in the response.

use super::{
    codes,
    head::OutgoingRequest,
    json_rpc::AROUND,
    link::InFlight,
    settings::Terms,
    unary::{ERROR_BODY_BYTES_MIN, post, read_body, with_head},
};
use crate::client::calls;
use ::http::StatusCode;
use bytes::Bytes;
use switchboard_core::Result;
use switchboard_net::http_fields::thrift;
use switchboard_wire::{
    Code, Input, Limits, Metadata, Outbox, Status,
    wire::{ClientEvent, ClientWire, Encoding, Open},
};

/// The id of the only call of a state machine.
const ID: u64 = 1;

/// Sends one call and waits for its reply; dropping the future cancels the call at the server.
///
/// # Errors
/// The status of the call, with the metadata of the response.
pub(super) async fn call(
    terms: Terms,
    link: &InFlight,
    call: OutgoingRequest<'_>,
    message: &Bytes,
) -> Result<calls::RawResponse> {
    let link = link.link();
    let mut machine = machine(&terms)?;
    let mut out = Outbox::new();
    machine.method(0, call.method.path_of(call.metadata), None, &mut out);
    let open = Open {
        method: 0,
        codec: call.codec,
        timeout: None,
        // The metadata is in the headers.
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
    let bytes_max = terms.message_bytes_max.saturating_add(AROUND).max(ERROR_BODY_BYTES_MIN);
    let reply = read_body(&mut body, link, bytes_max).await?;
    if call.oneway {
        return Ok(calls::RawResponse {
            item: Bytes::new().into(),
            head,
            trailers: Metadata::new(),
            attempts: 1,
        });
    }
    let mut input = Input::default();
    input.extend(&reply);
    let why = match machine.recv(&mut input, &mut out) {
        Ok(Some(ClientEvent::Reply { item, .. })) => {
            return Ok(calls::RawResponse {
                item: item.into(),
                head,
                trailers: Metadata::new(),
                attempts: 1,
            });
        }
        Ok(Some(ClientEvent::End { end: Err(status), .. })) => return Err(with_head(status, head)),
        Ok(_) => "the response ended in the middle of a message".to_owned(),
        Err(fatal) => fatal.to_string(),
    };
    Err(match thrift::is_typed(&headers) {
        true => codes::from_path(Code::Internal, why),
        // From a proxy, or from a server of another protocol.
        false => {
            codes::unexpected_response(StatusCode::OK, &headers, call.content_type(&terms)?, link.peer())
        }
    })
}

/// Creates a state machine for one call of Thrift.
///
/// # Errors
/// `Internal` if the channel was not set up for Thrift.
fn machine(terms: &Terms) -> Result<Box<dyn ClientWire>> {
    let mut limits = Limits::default();
    limits.message_bytes_max = u32::try_from(terms.message_bytes_max).unwrap_or(u32::MAX);
    let posted = terms.posted.ok_or_else(|| Status::internal("the channel has no machine for Thrift"))?;
    Ok((posted.create)(limits, posted.variant))
}
