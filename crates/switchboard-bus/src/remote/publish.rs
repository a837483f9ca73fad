//! Publications with repeated attempts, where these cannot append twice.

use super::{is_transient, pause};
use crate::{
    convert,
    v1::{self, BusClient},
};
use std::time::Duration;
use switchboard::{Code, Result, Retry, Status};
use switchboard_message::Position;
use tokio::time::Instant;

/// Period in which a publication is repeated. Well below the window in which the server knows its id (2 minutes).
const REPEAT_MAX: Duration = Duration::from_secs(30);

/// Publishes entries to one topic, all or none.
pub(super) async fn publish(
    client: &BusClient,
    topic: String,
    entries: Vec<v1::Publication>,
) -> Result<Position> {
    let have_ids = entries.iter().all(|entry| !entry.id.is_empty());
    let (begun, mut failures) = (Instant::now(), 0);
    loop {
        let status = match attempt(client, &topic, &entries).await {
            Ok(position) => return Ok(position),
            Err(status) => status,
        };
        if !may_repeat(&status, have_ids) || begun.elapsed() >= REPEAT_MAX {
            return Err(status);
        }
        failures += 1;
        tokio::time::sleep(pause(failures, Some(&status))).await;
    }
}

async fn attempt(client: &BusClient, topic: &str, entries: &[v1::Publication]) -> Result<Position> {
    let topic = topic.to_owned();
    let position = match entries {
        [entry] => {
            let request = v1::PublishRequest { topic, entry: entry.clone().into(), ..Default::default() };
            client.publish(request).await?.into_inner().position
        }
        entries => {
            let request = v1::PublishBatchRequest { topic, entries: entries.to_vec(), ..Default::default() };
            client.publish_batch(request).await?.into_inner().position
        }
    };
    Ok(convert::to_position(&position))
}

/// Returns whether a second attempt cannot append an entry twice, and may succeed. A full topic is the publisher's to
/// wait for.
fn may_repeat(status: &Status, have_ids: bool) -> bool {
    let is_unsent = matches!(status.retry(), Retry::Safe | Retry::After(_));
    is_transient(status) && status.code() == Code::Unavailable && (have_ids || is_unsent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_publications_with_ids_are_repeated_after_an_unknown_outcome() {
        let lost = Status::unavailable("lost").with_retry(Retry::IfIdempotent);
        assert!(may_repeat(&lost, true) && !may_repeat(&lost, false));
        let unsent = Status::unavailable("unsent").with_retry(Retry::Safe);
        assert!(may_repeat(&unsent, true) && may_repeat(&unsent, false));
        let full = Status::resource_exhausted("full").with_retry(Retry::Safe);
        assert!(!may_repeat(&full, true) && !may_repeat(&full, false));
        assert!(!may_repeat(&Status::permission_denied("no"), true));
    }
}
