//! A subscription that begins again after a lost connection.
//!
//! ```text
//! Calling ──► Open ──► (lost) ──► Pausing ──► Calling …
//! ```

use super::{PAUSES, is_transient, no_first_event, pause, progress::Progress};
use crate::{
    convert,
    v1::{self, BusClient, subscribe_event::Event},
};
use futures_core::Stream;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use switchboard::{Receiver, Result, Status};
use switchboard_message::{
    Position,
    remote::{RemoteEvent, RemoteSubscribe},
};
use tokio::time::{Instant, Sleep};

/// Events of a subscription. It holds no entry beside those of one stream.
pub(super) struct Events {
    client: BusClient,
    /// Request without its start.
    request: v1::SubscribeRequest,
    progress: Progress,
    state: State,
    /// Attempts since the last entry or gap, or since a stream that lived as long as the longest pause. The first event
    /// alone is no success: a server may end each stream right after it.
    failures: u32,
    /// Time of the first event of the stream.
    started_at: Option<Instant>,
    /// Position before the first entry of the stream.
    begins_after: Option<Position>,
    /// An entry behind the gap of a log that has ended.
    next: Option<RemoteEvent>,
}

enum State {
    Calling(Pin<Box<dyn Future<Output = Result<Receiver<v1::SubscribeEvent>>> + Send>>),
    /// The first event has arrived.
    Open(Receiver<v1::SubscribeEvent>),
    /// The first event has not arrived.
    Opening(Receiver<v1::SubscribeEvent>),
    Pausing(Pin<Box<Sleep>>),
    Ended,
}

impl Events {
    /// Begins a subscription, and waits for its first event.
    pub(super) async fn begin(client: BusClient, subscribe: RemoteSubscribe) -> Result<Events> {
        let (mut request, start) = convert::subscribe_request(subscribe);
        let is_pattern = request.prefix.is_some() || is_pattern(&request.topic);
        let progress = Progress::new(start, is_pattern, !request.group.is_empty());
        let mut stream = client.subscribe(with_start(&mut request, &progress)).await?;
        let mut events = Events {
            client,
            request,
            progress,
            state: State::Ended,
            failures: 0,
            started_at: None,
            begins_after: None,
            next: None,
        };
        let first = stream.next().await?.and_then(|event| event.event);
        let Some(Event::Started(started)) = first else { return Err(no_first_event("Subscribe", "started")) };
        events.started(*started);
        events.state = State::Open(stream);
        Ok(events)
    }

    fn started(&mut self, started: v1::Started) {
        self.started_at = Some(Instant::now());
        self.begins_after = started.position.as_option().map(convert::to_position);
        self.progress.started(started);
    }

    fn call(&mut self) -> State {
        let (client, request) = (self.client.clone(), with_start(&mut self.request, &self.progress));
        State::Calling(Box::pin(async move { client.subscribe(request).await }))
    }

    /// Continues after a failure, unless it is permanent.
    fn failed(&mut self, status: Option<Status>) -> Option<Result<RemoteEvent>> {
        match status {
            Some(status) if !is_transient(&status) => {
                self.state = State::Ended;
                Some(Err(status))
            }
            status => {
                let has_lived = self.started_at.take().is_some_and(|at| at.elapsed() >= PAUSES[1]);
                self.failures = if has_lived { 1 } else { self.failures.saturating_add(1) };
                let pause = pause(self.failures, status.as_ref());
                self.state = State::Pausing(Box::pin(tokio::time::sleep(pause)));
                None
            }
        }
    }

    /// Converts an event; `None` for one that the application does not receive.
    fn convert(&mut self, event: v1::SubscribeEvent) -> Result<Option<RemoteEvent>> {
        Ok(match event.event {
            Some(Event::Entry(entry)) => {
                let place = (entry.shard, entry.sequence);
                let entry = convert::to_entry(*entry)?;
                let is_new = self.progress.accepts(&entry, place);
                is_new.then(|| RemoteEvent::Entry(Box::new(entry)))
            }
            Some(Event::Gap(gap)) => self.progress.gap(convert::to_gap(&gap)?).map(RemoteEvent::Gap),
            Some(Event::Recovered(_)) => {
                self.progress.recovered(self.begins_after).then_some(RemoteEvent::Recovered)
            }
            // Kinds that this version does not know.
            Some(Event::Started(_)) | None => None,
        })
    }
}

impl Stream for Events {
    type Item = Result<RemoteEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let events = &mut *self;
        loop {
            if let Some(gap) = events.progress.next_ended() {
                return Poll::Ready(Some(Ok(RemoteEvent::Gap(gap))));
            }
            if let Some(next) = events.next.take() {
                return Poll::Ready(Some(Ok(next)));
            }
            let failure = match &mut events.state {
                State::Ended => return Poll::Ready(None),
                State::Pausing(timer) => {
                    ready!(timer.as_mut().poll(cx));
                    events.state = events.call();
                    continue;
                }
                State::Calling(call) => match ready!(call.as_mut().poll(cx)) {
                    Ok(stream) => {
                        events.state = State::Opening(stream);
                        continue;
                    }
                    Err(status) => Some(status),
                },
                State::Opening(stream) => match ready!(Pin::new(stream).poll_next(cx)) {
                    Some(Ok(v1::SubscribeEvent { event: Some(Event::Started(started)), .. })) => {
                        events.started(*started);
                        if let State::Opening(stream) = std::mem::replace(&mut events.state, State::Ended) {
                            events.state = State::Open(stream);
                        }
                        continue;
                    }
                    Some(Ok(_)) => Some(no_first_event("Subscribe", "started")),
                    Some(Err(status)) => Some(status),
                    None => None,
                },
                State::Open(stream) => match ready!(Pin::new(stream).poll_next(cx)) {
                    Some(Ok(event)) => match events.convert(event) {
                        Ok(event) => {
                            if matches!(event, Some(RemoteEvent::Entry(_) | RemoteEvent::Gap(_))) {
                                events.failures = 0;
                            }
                            events.next = event;
                            continue;
                        }
                        Err(status) => Some(status),
                    },
                    Some(Err(status)) => Some(status),
                    None => None,
                },
            };
            if let Some(error) = events.failed(failure) {
                return Poll::Ready(Some(error));
            }
        }
    }
}

/// Returns the request with the start of the next attempt.
fn with_start(request: &mut v1::SubscribeRequest, progress: &Progress) -> v1::SubscribeRequest {
    request.start = progress.next_start();
    request.clone()
}

fn is_pattern(topic: &str) -> bool {
    topic.split('/').any(|level| matches!(level, "*" | "+" | ">" | "#"))
}
