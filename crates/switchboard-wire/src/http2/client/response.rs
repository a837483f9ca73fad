//! Heads and ends of responses.

use super::{
    super::{
        frame::{self, ConnectionError, ErrorCode},
        hpack::{ListLimits, Listed},
    },
    Client, grpc,
    stream::{Stream, call_of},
};
use crate::{
    Code, Encoding, Metadata, Outbox, Status,
    wire::{ClientCallId, ClientEvent},
};
use bytes::Bytes;

/// Fields of a block beside its metadata.
const OTHER_FIELDS_MAX: usize = 32;

impl Client {
    /// Handles a complete header block: a head, or trailers.
    pub(super) fn header_block(
        &mut self,
        stream: u32,
        ends: bool,
        block: &[u8],
        out: &mut Outbox,
    ) -> Result<(), ConnectionError> {
        let generation = self.decoder.generation();
        if let Some(state) = self.streams.get_mut(stream) {
            if ends && state.has_head && self.known_ends.find(block, generation).is_some() {
                self.finish(stream, Ok(Metadata::new()), out);
                return Ok(());
            }
            if !ends && !state.has_head && self.known_heads.find(block, generation) == Some(state.codec) {
                self.accept_head(stream, Metadata::new(), Encoding::Identity);
                return Ok(());
            }
        }
        let (fields, listed) = self.decode(block)?;
        let Some(state) = self.streams.get(stream) else { return Ok(()) };
        let (has_head, codec) = (state.has_head, state.codec);
        if self.decoder.generation() == generation && listed == Listed::Complete {
            if fields.is_plain_head()
                && let Some(codec) = fields.codec
            {
                self.known_heads.store(block, generation, codec);
            } else if fields.is_plain_end() {
                self.known_ends.store(block, generation, codec);
            }
        }
        let reason = match (fields.malformed, has_head) {
            (Some(reason), _) => Some(reason),
            (None, false) if fields.http_status == 0 => Some("a head without a status"),
            (None, false) if fields.http_status < 200 && ends => {
                Some("an informational head ends its stream")
            }
            (None, true) if !ends => Some("trailers that do not end their stream"),
            (None, true) if fields.http_status != 0 => Some("trailers with a pseudo-field"),
            _ => None,
        };
        if let Some(reason) = reason {
            let text = format!("{} sent an invalid HTTP/2 response: {reason}", self.peer);
            self.fail(stream, grpc::protocol_error(text), ErrorCode::PROTOCOL_ERROR, out);
        } else if listed == Listed::OverLimit {
            let text = format!(
                "reply metadata is over the limit of {} bytes or {} entries (metadata_bytes_max, metadata_entries_max)",
                self.limits.metadata_bytes_max, self.limits.metadata_entries_max
            );
            self.fail(stream, Status::resource_exhausted(text), ErrorCode::CANCEL, out);
        } else if has_head {
            let mut fields = fields;
            self.finish(stream, fields.end(), out);
        } else if fields.http_status >= 200 {
            self.head(stream, ends, fields, out);
        }
        Ok(())
    }

    /// Decodes a block into its fields.
    fn decode(&mut self, block: &[u8]) -> Result<(grpc::Fields, Listed), ConnectionError> {
        let entries_max = self.limits.metadata_entries_max as usize;
        let limits = ListLimits {
            bytes_max: self.limits.metadata_bytes_max as usize,
            fields_max: entries_max + OTHER_FIELDS_MAX,
        };
        let mut fields = grpc::Fields::default();
        let listed = self.decoder.decode(block, limits, |field| fields.add(field, entries_max));
        Ok((fields, listed.map_err(Client::compression_error)?))
    }

    /// Handles the head of a response, which is all of it if it `ends` the stream.
    fn head(&mut self, stream: u32, ends: bool, mut fields: grpc::Fields, out: &mut Outbox) {
        let Some(state) = self.streams.get(stream) else { return };
        let checked = fields.check_head(state.codec, &self.peer);
        let checked = checked.and_then(|()| fields.reply_encoding(state.encoding));
        let (encoding, metadata) = match checked {
            Err(status) if ends => return self.finish(stream, Err(status), out),
            Err(status) => return self.fail(stream, status, ErrorCode::CANCEL, out),
            Ok(_) if ends && fields.grpc_status.is_none() => {
                return self.finish(stream, Err(without_status()), out);
            }
            Ok(_) if ends => return self.finish(stream, fields.end(), out),
            Ok(encoding) if fields.grpc_status.is_some() => {
                let end = fields.end();
                if let Some(state) = self.streams.get_mut(stream) {
                    state.body_mut().early_end = Some(end);
                }
                (encoding, Ok(Metadata::new()))
            }
            Ok(encoding) => (encoding, fields.take_metadata()),
        };
        match metadata {
            Ok(metadata) => self.accept_head(stream, metadata, encoding),
            Err(status) => self.fail(stream, status, ErrorCode::CANCEL, out),
        }
    }

    /// Accepts the head of a call. A stream reports it at once, a unary call at its end.
    fn accept_head(&mut self, stream: u32, metadata: Metadata, encoding: Encoding) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        state.has_head = true;
        if encoding != Encoding::Identity {
            state.body_mut().is_encoded = true;
        }
        if !state.is_unary {
            self.events.push_back(ClientEvent::Head { id: call_of(stream), metadata });
        } else if !metadata.is_empty() {
            state.body_mut().head = metadata;
        }
    }

    /// Handles the end of a response whose last frame is DATA.
    pub(super) fn end_without_trailers(&mut self, stream: u32, out: &mut Outbox) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let early_end = state.body.as_deref_mut().and_then(|body| body.early_end.take());
        self.finish(stream, early_end.unwrap_or_else(|| Err(without_status())), out);
    }

    /// Ends a call whose response is complete.
    fn finish(&mut self, stream: u32, end: Result<Metadata, Status>, out: &mut Outbox) {
        let Some(state) = self.close(stream) else { return };
        if !state.has_ended {
            // The server needs no more of the request.
            frame::put_reset(stream, ErrorCode::NO_ERROR, out.tail());
        }
        let id = call_of(stream);
        let Stream { is_unary, held, body, .. } = state;
        let Some(body) = body else {
            return self.events.push_back(match (end, held) {
                (Ok(trailers), Some((item, compressed))) if trailers.is_empty() => {
                    ClientEvent::Reply { id, item, compressed }
                }
                (end, held) => return self.finish_with(id, is_unary, Metadata::new(), held, end),
            });
        };
        let end = match end {
            Ok(_) if body.is_inside_message() => {
                Err(grpc::protocol_error("the response ended in the middle of a message"))
            }
            end => end,
        };
        self.finish_with(id, is_unary, body.head, held, end);
    }

    /// Reports the end of a call, after the head and the message of a unary one.
    fn finish_with(
        &mut self,
        id: ClientCallId,
        is_unary: bool,
        head: Metadata,
        held: Option<(Bytes, bool)>,
        end: Result<Metadata, Status>,
    ) {
        if !is_unary {
            return self.events.push_back(ClientEvent::End { id, end });
        }
        match (end, held) {
            (Err(status), _) => {
                let end = Err(with_head(status, head));
                self.events.push_back(ClientEvent::End { id, end });
            }
            (Ok(_), None) => self.events.push_back(ClientEvent::End { id, end: Err(without_reply()) }),
            (Ok(trailers), Some((item, compressed))) if trailers.is_empty() && head.is_empty() => {
                self.events.push_back(ClientEvent::Reply { id, item, compressed });
            }
            (Ok(trailers), Some((item, compressed))) => {
                if !head.is_empty() {
                    self.events.push_back(ClientEvent::Head { id, metadata: head });
                }
                self.events.push_back(ClientEvent::Item { id, item, compressed });
                self.events.push_back(ClientEvent::End { id, end: Ok(trailers) });
            }
        }
    }
}

fn without_status() -> Status {
    grpc::protocol_error("the server ended the call without a status")
}

fn without_reply() -> Status {
    grpc::from_path(Code::Unimplemented, "the server ended a unary call without a reply")
}

/// Adds the metadata of the head, before that of the trailers.
fn with_head(mut status: Status, head: Metadata) -> Status {
    if !head.is_empty() {
        let trailers = std::mem::replace(status.metadata_mut(), head);
        status.metadata_mut().extend(trailers);
    }
    status
}
