//! Publications of peers whose protocol cannot make them wait.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_message::{Bus, Publication, Topic};
use switchboard_wire::Status;

/// Publishes to a topic, without waiting for a slow reader of the topic. `peers` names those that publish, for the
/// error.
///
/// # Errors
/// That of the bus, and `ResourceExhausted` if the topic is full and makes its publishers wait.
pub(crate) fn publish(bus: &Bus, topic: &Topic, publication: Publication, peers: &str) -> Result<()> {
    let publishing = pin!(bus.publish_encoded(topic, publication));
    match publishing.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(published) => published.map(drop),
        Poll::Pending => {
            let text = format!("topic \"{topic}\" makes its publishers wait, which {peers} cannot");
            Err(Status::resource_exhausted(text))
        }
    }
}
