//! Publications of the application.

use super::state::State;
use crate::accepts::OPERATION;
use bytes::Bytes;
use serde::Serialize;
use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};
use switchboard::{Result, Status, codec};
use switchboard_message::{Position, Publication, Topic};
use switchboard_wire::Codec;

/// A message to be published to devices: `await` the position. The default codec is JSON.
#[must_use = "a publication does nothing before it is awaited"]
pub struct Publish<'a> {
    state: &'a State,
    topic: Result<Topic>,
    publication: Result<Publication>,
    is_broadcast: bool,
}

impl<'a> Publish<'a> {
    pub(super) fn new(
        state: &'a State,
        topic: Result<Topic>,
        publication: Result<Publication>,
    ) -> Publish<'a> {
        Publish { state, topic, publication, is_broadcast: false }
    }

    /// Counts in the rate of publications to all devices.
    pub(super) fn broadcast(mut self) -> Publish<'a> {
        self.is_broadcast = true;
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Publication) -> Result<()>) -> Publish<'a> {
        self.publication = self.publication.and_then(|mut publication| {
            change(&mut publication)?;
            Ok(publication)
        });
        self
    }

    /// Sets the operation: devices whose filter does not accept it do not receive the entry.
    pub fn operation(self, operation: i32) -> Publish<'a> {
        self.header(OPERATION, operation.to_string())
    }

    /// Sets the key: a room that [conflates](crate::Rooms::conflate) keeps the newest entry of each.
    pub fn key(self, key: impl Into<Bytes>) -> Publish<'a> {
        self.change(|publication| {
            publication.key = key.into();
            Ok(())
        })
    }

    /// Sets the id: a second publication with it within the window is not delivered, and returns the first position.
    pub fn id(self, id: impl Into<Bytes>) -> Publish<'a> {
        self.change(|publication| {
            publication.id = id.into();
            Ok(())
        })
    }

    /// Sets the period after which the entry is not delivered.
    pub fn expires_in(self, period: Duration) -> Publish<'a> {
        self.change(|publication| {
            publication.expires_in = Some(period);
            Ok(())
        })
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: impl Into<Bytes>) -> Publish<'a> {
        let value = value.into();
        self.change(|publication| {
            publication.headers.insert(name, value).map_err(|invalid| {
                Status::invalid_argument(format!("header \"{name}\" of an entry: {invalid}"))
            })
        })
    }

    async fn run(self) -> Result<Position> {
        let (topic, publication) = (self.topic?, self.publication?);
        State::check_control(&publication)?;
        if self.is_broadcast {
            let rate = &self.state.broadcast_rate;
            rate.take((), 1).map_err(|pause| {
                let text = format!("more entries to all devices than broadcasts_per_s={}", rate.per_second);
                Status::resource_exhausted(text).with_retry(switchboard_wire::Retry::After(pause))
            })?;
        }
        self.state.publish(&topic, publication).await
    }
}

/// Encodes a message as JSON.
pub(super) fn encoded<T: Serialize>(message: &T) -> Result<Publication> {
    Ok(Publication::new(Codec::Json, codec::serde::encode(message, Codec::Json)?))
}

impl<'a> IntoFuture for Publish<'a> {
    type Output = Result<Position>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Position>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Publish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish").field("topic", &self.topic).finish_non_exhaustive()
    }
}
