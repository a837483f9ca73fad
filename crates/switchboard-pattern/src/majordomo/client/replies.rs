//! Replies to one request.

use super::{
    super::command::{Tagged, ToClient},
    Inner,
    connection::{Connection, Event, Events},
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use switchboard_core::Result;
use switchboard_socket::Message;
use switchboard_wire::{Code, Origin, Retry, Status};
use tokio::{sync::OwnedSemaphorePermit, time::timeout_at};

/// Replies to one request: any number of parts, then the final one. Dropping it abandons the request.
#[derive(Debug)]
pub struct Replies {
    client: Arc<Inner>,
    /// None after the end.
    connection: Option<Connection>,
    tag: u64,
    events: Events,
    deadline: Instant,
    timeout: Duration,
    _permit: OwnedSemaphorePermit,
}

/// A part of a reply, or the final one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    body: Message,
    is_final: bool,
}

impl Reply {
    /// Returns the frames.
    pub fn body(&self) -> &Message {
        &self.body
    }

    /// Returns the frames.
    pub fn into_body(self) -> Message {
        self.body
    }

    /// Returns true for the last reply.
    pub fn is_final(&self) -> bool {
        self.is_final
    }
}

impl Replies {
    pub(super) fn new(
        client: Arc<Inner>,
        connection: Connection,
        tag: u64,
        events: Events,
        (deadline, timeout): (Instant, Duration),
        permit: OwnedSemaphorePermit,
    ) -> Replies {
        Replies { client, connection: Some(connection), tag, events, deadline, timeout, _permit: permit }
    }

    pub(super) async fn send(&self, request: Message) -> Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        match timeout_at(self.deadline.into(), connection.send(request)).await {
            Ok(sent) => sent,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the broker at {} is not reachable, or does not read, for {:?}",
                self.client.builder.endpoint, self.timeout
            ))
            .with_retry(Retry::Safe)),
        }
    }

    /// Returns the next reply, `None` after the final one. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`RequestBuilder::send`](super::RequestBuilder::send), and `ResourceExhausted` when 256
    /// parts or 16 MiB of them wait for the program.
    pub async fn next(&mut self) -> Result<Option<Reply>> {
        if self.connection.is_none() {
            return Ok(None);
        }
        let event = timeout_at(self.deadline.into(), self.events.next()).await;
        let result = self.read(event.ok());
        match &result {
            Ok(reply) if reply.is_final => {
                self.client.counts.replies.fetch_add(1, Relaxed);
                if let Some(connection) = self.connection.take() {
                    self.client.release(connection);
                }
            }
            Ok(_) => {}
            Err(failure) => {
                self.client.counts.failed(failure);
                self.end();
            }
        }
        result.map(Some)
    }

    fn read(&self, event: Option<Option<Event>>) -> Result<Reply> {
        match event {
            Some(Some(Event::Reply(ToClient { is_final, tagged, body }))) => match tagged {
                Some(Tagged { code, .. }) if code != 0 => {
                    let text = body.first().map(|text| String::from_utf8_lossy(text).into_owned());
                    let code = Code::from_number(code.into());
                    Err(Status::new(code, text.unwrap_or_default()).with_origin(Origin::Peer))
                }
                _ => Ok(Reply { body: Message::from(body), is_final }),
            },
            Some(Some(Event::ConnectionLost)) => Err(Status::unavailable(format!(
                "the connection to the broker at {} ended before the reply; the request may have been executed",
                self.client.builder.endpoint
            ))
            .with_origin(Origin::Connection)
            .with_retry(Retry::IfIdempotent)),
            Some(None) => Err(Status::resource_exhausted(
                "more than 256 parts or 16 MiB of the reply wait for the program, or the connection is closed",
            )),
            None => Err(Status::deadline_exceeded(format!(
                "no final reply within {:?}; the request may have been executed",
                self.timeout
            ))
            .with_retry(Retry::IfIdempotent)),
        }
    }

    /// Ends the request. Without the extension a late reply could be taken for that of the next request, so the
    /// connection closes.
    fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.forget(self.tag);
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.end();
    }
}
