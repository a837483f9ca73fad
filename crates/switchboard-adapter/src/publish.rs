//! Publications of peers whose protocol cannot make them wait.

use switchboard_core::Result;
use switchboard_message::{Attempt, Bus, Publication, Topic};
use switchboard_wire::Status;

/// Publishes to a topic, without waiting for a slow reader of the topic. `peers` names those that publish, for the
/// error. Returns the number of subscriptions and groups that receive it; `None` for a durable topic, whose file is
/// written in the background.
///
/// # Errors
/// That of the bus, and `ResourceExhausted` if the topic is full and makes its publishers wait.
pub(crate) fn publish(
    bus: &Bus,
    topic: &Topic,
    publication: Publication,
    peers: &str,
) -> Result<Option<u32>> {
    match bus.publish_encoded(topic, publication).attempt()? {
        Attempt::Published(_, receivers) => Ok(Some(receivers)),
        Attempt::Durable(publishing) => publishing.later().map(|()| None),
        Attempt::Waits(_) => {
            let text = format!("topic \"{topic}\" makes its publishers wait, which {peers} cannot");
            Err(Status::resource_exhausted(text))
        }
    }
}
