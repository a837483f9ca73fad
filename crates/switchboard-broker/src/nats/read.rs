//! Entries that the stream keeps, by direct gets.

use super::{
    RESPONSE_TIMEOUT, Shared,
    jetstream::{info, number, unreadable},
};
use crate::record;
use async_nats::{Client, Message, StatusCode};
use bytes::Bytes;
use futures_core::Stream;
use serde_json::{Value, json};
use std::{collections::VecDeque, future::poll_fn, pin::Pin, sync::Arc, time::SystemTime};
use switchboard_core::{Result, clock};
use switchboard_message::{
    Gap, GapReason, Position, Topic,
    broker::{Page, ReadFrom, StoredEntry},
};
use switchboard_wire::Status;
use tokio::time::timeout;

/// Messages of one request. A server before 2.11 responds with one.
const BATCH_MAX: usize = 256;
/// Bytes of one response beside its last message.
const BYTES_MAX: usize = 1 << 20;

/// Returns the number of the newest entry of a topic; 0 if it has none.
pub(super) async fn newest(shared: &Arc<Shared>, client: &Client, topic: &Topic) -> Result<u64> {
    let get = json!({"last_by_subj": shared.options.stored(topic)});
    let found = direct_get(shared, client, &get).await?;
    Ok(found.messages.first().and_then(|message| number(message, "Nats-Sequence")).unwrap_or(0))
}

/// Reads a page.
pub(super) async fn page(
    shared: &Arc<Shared>,
    topic: &Topic,
    from: ReadFrom,
    entries_max: usize,
) -> Result<Page> {
    let client = shared.client().await?;
    let epoch = shared.epoch(&client).await?;
    let reader = Reader { shared, client: &client, topic, subject: shared.options.stored(topic), epoch };
    match from {
        ReadFrom::After(position) if position.epoch != epoch => {
            let (entries, head) = reader.read(1, entries_max).await?;
            let end = entries.first().map_or(head + 1, |entry| entry.position.offset);
            // Numbers below belong to other topics, or to entries that are gone.
            Ok(reader.page(head, Some((1..end, GapReason::Epoch)), entries))
        }
        ReadFrom::After(position) => reader.after(position.offset, entries_max).await,
        ReadFrom::Last(entries) => reader.last(entries, entries_max).await,
        ReadFrom::Since(age) => {
            let since = clock::time_of_day().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
            reader.since(since, entries_max).await
        }
        _ => Err(Status::unimplemented(format!("{} does not have this start", shared.name))),
    }
}

struct Reader<'a> {
    shared: &'a Arc<Shared>,
    client: &'a Client,
    topic: &'a Topic,
    subject: String,
    epoch: u64,
}

impl Reader<'_> {
    fn page(
        &self,
        head: u64,
        missing: Option<(std::ops::Range<u64>, GapReason)>,
        entries: Vec<StoredEntry>,
    ) -> Page {
        let head = Position { epoch: self.epoch, offset: head };
        let gap = |(range, reason)| Gap::new(self.topic.clone(), self.epoch, range, None, reason);
        Page::new(head, missing.map(gap), entries)
    }

    /// Reads the entries from a number on, and the number of the newest one.
    async fn read(&self, from: u64, entries_max: usize) -> Result<(Vec<StoredEntry>, u64)> {
        let (mut entries, mut next, mut bytes) = (Vec::<StoredEntry>::new(), from, 0);
        let mut previous = from.saturating_sub(1);
        while entries.len() < entries_max && bytes < BYTES_MAX {
            let found = self.get(next, entries_max - entries.len(), None).await?;
            for message in &found.messages {
                let offset = self.number(message)?;
                bytes += message.payload.len();
                let publication = record::decode(message.payload.clone(), record::now());
                entries.push(StoredEntry::new(Position { epoch: self.epoch, offset }, previous, publication));
                (previous, next) = (offset, offset + 1);
            }
            if found.is_all {
                return Ok((entries, previous.max(self.newest().await?)));
            }
        }
        Ok((entries, self.newest().await?.max(previous)))
    }

    async fn newest(&self) -> Result<u64> {
        newest(self.shared, self.client, self.topic).await
    }

    async fn after(&self, offset: u64, entries_max: usize) -> Result<Page> {
        // With the entry at the position: the entries behind it are complete while it is there.
        let (mut entries, head) = self.read(offset, entries_max.saturating_add(1)).await?;
        if entries.first().is_some_and(|first| offset > 0 && first.position.offset == offset) {
            entries.remove(0);
            return Ok(self.page(head, None, entries));
        }
        entries.truncate(entries_max);
        let state =
            info(&self.shared.name, self.client, &self.shared.options, Some(&self.subject)).await?.state;
        if offset > state.last_seq {
            let lost = state.last_seq + 1..offset.saturating_add(1);
            return Ok(self.page(head, Some((lost, GapReason::Lost)), entries));
        }
        let kept = state.subjects.and_then(|subjects| subjects.get(&self.subject).copied()).unwrap_or(0);
        let is_trimmed =
            kept >= self.shared.options.history as u64 || state.first_seq > offset.saturating_add(1);
        let end = entries.first().map_or(offset, |entry| entry.position.offset);
        let missing = is_trimmed && end > offset.saturating_add(1);
        Ok(self.page(head, missing.then_some((offset + 1..end, GapReason::Expired)), entries))
    }

    async fn last(&self, last: usize, entries_max: usize) -> Result<Page> {
        if last == 0 {
            return Ok(self.page(self.newest().await?, None, Vec::new()));
        }
        // The stream finds entries by number only: the topic is read once for its numbers.
        let (mut numbers, mut next) = (VecDeque::new(), 1);
        loop {
            let found = self.get(next, BATCH_MAX, None).await?;
            for message in &found.messages {
                if numbers.len() == last {
                    numbers.pop_front();
                }
                numbers.push_back(self.number(message)?);
            }
            match numbers.back() {
                Some(newest) if !found.is_all => next = newest + 1,
                _ => break,
            }
        }
        let Some(first) = numbers.front() else { return Ok(self.page(0, None, Vec::new())) };
        let (entries, head) = self.read(*first, entries_max).await?;
        Ok(self.page(head, None, entries))
    }

    async fn since(&self, since: SystemTime, entries_max: usize) -> Result<Page> {
        let (mut next, mut is_first) = (1, true);
        loop {
            let found = self.get(next, 1, Some(since).filter(|_| is_first)).await?;
            let Some(message) = found.messages.first() else {
                return Ok(self.page(self.newest().await?, None, Vec::new()));
            };
            let number = self.number(message)?;
            if time(message).is_some_and(|time| time < since) {
                // A server before 2.11 does not find entries by time.
                (next, is_first) = (number + 1, false);
                continue;
            }
            let oldest = self.get(1, 1, None).await?;
            let oldest = oldest.messages.first().map(|message| self.number(message)).transpose()?;
            let state =
                info(&self.shared.name, self.client, &self.shared.options, Some(&self.subject)).await?.state;
            let kept = state.subjects.and_then(|subjects| subjects.get(&self.subject).copied()).unwrap_or(0);
            // All kept entries are newer: those before them may be as well.
            let is_lost = oldest == Some(number) && kept >= self.shared.options.history as u64;
            let (entries, head) = self.read(number, entries_max).await?;
            return Ok(self.page(head, is_lost.then_some((1..number, GapReason::Expired)), entries));
        }
    }

    fn number(&self, message: &Message) -> Result<u64> {
        number(message, "Nats-Sequence").ok_or_else(|| unreadable(&self.shared.name))
    }

    /// Gets messages of the topic from a number, or a time, on.
    async fn get(&self, from: u64, messages_max: usize, since: Option<SystemTime>) -> Result<Found> {
        let messages = messages_max.clamp(1, BATCH_MAX);
        let mut get = json!({"next_by_subj": self.subject, "batch": messages, "max_bytes": BYTES_MAX});
        match since {
            Some(since) => get["start_time"] = humantime::format_rfc3339_nanos(since).to_string().into(),
            None => get["seq"] = from.max(1).into(),
        }
        direct_get(self.shared, self.client, &get).await
    }
}

/// Messages of a direct get.
struct Found {
    messages: Vec<Message>,
    /// The topic has no further ones.
    is_all: bool,
}

/// Sends a direct get; the server responds with messages, and a status after a batch.
async fn direct_get(shared: &Arc<Shared>, client: &Client, get: &Value) -> Result<Found> {
    let is_batch = get.get("batch").is_some();
    let reply = client.new_inbox();
    let away = |error: &dyn std::fmt::Display| shared.away(error);
    let mut responses = client.subscribe(reply.clone()).await.map_err(|error| away(&error))?;
    let subject = format!("$JS.API.DIRECT.GET.{}", shared.options.prefix);
    let body = Bytes::from(get.to_string());
    client.publish_with_reply(subject, reply, body).await.map_err(|error| away(&error))?;
    let mut messages = Vec::new();
    loop {
        let next = timeout(RESPONSE_TIMEOUT, poll_fn(|cx| Pin::new(&mut responses).poll_next(cx))).await;
        let Ok(Some(message)) = next else { return Err(shared.away("does not respond")) };
        match message.status {
            // The end of a batch; or no message at all.
            Some(StatusCode::NOT_FOUND) => return Ok(Found { messages, is_all: true }),
            Some(StatusCode::NO_RESPONDERS) => return Err(shared.away("the stream does not respond")),
            Some(status) if status.as_u16() == 204 => {
                let is_all = number(&message, "Nats-Num-Pending") == Some(0);
                return Ok(Found { messages, is_all });
            }
            Some(status) => return Err(shared.away(format!("a direct get failed with status {status}"))),
            None => {}
        }
        let ends = !is_batch || number(&message, "Nats-Num-Pending").is_none();
        messages.push(message);
        if ends {
            return Ok(Found { messages, is_all: false });
        }
    }
}

/// Returns the time at which a message was stored.
fn time(message: &Message) -> Option<SystemTime> {
    let text = message.headers.as_ref()?.get("Nats-Time-Stamp")?;
    humantime::parse_rfc3339(text.as_str()).ok()
}
