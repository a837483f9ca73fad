//! The topics of another process, by calls of its service.

mod background;
mod outage;
mod progress;
mod publish;
mod subscription;

use crate::{
    convert,
    v1::{self, BusClient, history_request, request_event},
};
use background::Background;
use futures_core::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use subscription::Events;
use switchboard::{Code, Receiver, Result, Retry, Status};
use switchboard_core::backoff;
use switchboard_message::{
    Position, Publication, TopicsPage,
    remote::{
        RemoteBus, RemoteEvent, RemoteFuture, RemoteHistory, RemoteHistoryPage, RemoteRequest, RemoteStart,
        RemoteStream, RemoteSubscribe, RemoteTopics, Settled,
    },
};

/// Shortest and longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// The service `switchboard.bus.v1.Bus` of another process.
#[derive(Debug)]
pub(crate) struct ServiceBus {
    client: BusClient,
    background: Background,
}

impl ServiceBus {
    pub(crate) fn new(client: BusClient) -> ServiceBus {
        ServiceBus { background: Background::new(client.clone()), client }
    }
}

impl RemoteBus for ServiceBus {
    fn publish(&self, topic: String, publications: Vec<Publication>) -> RemoteFuture<Position> {
        let client = self.client.clone();
        let entries = publications.into_iter().map(convert::to_publication).collect();
        Box::pin(async move { publish::publish(&client, topic, entries).await })
    }

    fn publish_later(&self, topic: String, publication: Publication) -> Result<()> {
        self.background.publish(topic, convert::to_publication(publication))
    }

    fn subscribe(&self, request: RemoteSubscribe) -> RemoteFuture<RemoteStream> {
        let client = self.client.clone();
        Box::pin(async move { Ok(Box::pin(Events::begin(client, request).await?) as RemoteStream) })
    }

    fn request(&self, request: RemoteRequest) -> RemoteFuture<(u32, RemoteStream)> {
        let client = self.client.clone();
        Box::pin(async move {
            let request = v1::RequestRequest {
                topic: request.topic,
                entry: convert::to_publication(request.publication).into(),
                time_limit: convert::to_duration(request.time_limit).into(),
                ..Default::default()
            };
            let mut events = client.request(request).await?;
            match events.next().await?.and_then(|event| event.event) {
                Some(request_event::Event::Sent(sent)) => {
                    Ok((sent.receivers, Box::pin(RequestReplies(events)) as RemoteStream))
                }
                _ => Err(no_first_event("Request", "sent")),
            }
        })
    }

    fn reply(&self, reply_to: String, reply: Publication) -> RemoteFuture<()> {
        let client = self.client.clone();
        let entry = convert::to_publication(reply).into();
        let request = v1::ReplyRequest { reply_to, entry, ..Default::default() };
        Box::pin(async move { client.reply(request).await.map(drop) })
    }

    fn settle(&self, ack_id: &str, outcome: Settled) -> bool {
        self.background.settle(ack_id, outcome)
    }

    fn settled(&self) -> RemoteFuture<()> {
        Box::pin(self.background.settled())
    }

    fn credit(&self, topic: String) -> RemoteFuture<usize> {
        let client = self.client.clone();
        let request = v1::CreditRequest { topic, ..Default::default() };
        Box::pin(async move { Ok(client.credit(request).await?.entries as usize) })
    }

    fn history(&self, request: RemoteHistory) -> RemoteFuture<RemoteHistoryPage> {
        let client = self.client.clone();
        let start = match request.start {
            RemoteStart::After(position) => {
                Some(history_request::Start::After(convert::position(position).into()))
            }
            RemoteStart::Since(age) => Some(history_request::Start::Since(convert::since(age).into())),
            _ => None,
        };
        let limit = request.entries_max.map_or(0, |entries| entries.try_into().unwrap_or(u32::MAX));
        let request = v1::HistoryRequest { topic: request.topic, start, limit, ..Default::default() };
        Box::pin(async move {
            let v1::HistoryResponse { entries, gaps, has_more, .. } =
                client.history(request).await?.into_inner();
            convert::to_history(entries, &gaps, has_more)
        })
    }

    fn topics(&self, request: RemoteTopics) -> RemoteFuture<TopicsPage> {
        let client = self.client.clone();
        let (pattern, prefix) = convert::selector(request.topics);
        let request = v1::TopicsRequest {
            pattern,
            prefix,
            limit: request.topics_max.map_or(0, |topics| topics.try_into().unwrap_or(u32::MAX)),
            page_token: request.token.unwrap_or_default(),
            ..Default::default()
        };
        Box::pin(async move {
            let response = client.topics(request).await?.into_inner();
            let topics = response.topics.iter().map(convert::to_topic).collect::<Result<_>>()?;
            let next = Some(response.next_page_token).filter(|token| !token.is_empty());
            Ok(TopicsPage::new(topics, next))
        })
    }
}

/// Replies to one request. They end with the connection: a request is not repeated.
struct RequestReplies(Receiver<v1::RequestEvent>);

impl Stream for RequestReplies {
    type Item = Result<RemoteEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(Pin::new(&mut self.0).poll_next(cx)) {
                Some(Ok(v1::RequestEvent { event: Some(request_event::Event::Reply(reply)), .. })) => {
                    let reply = convert::to_entry(*reply);
                    return Poll::Ready(Some(reply.map(|reply| RemoteEvent::Entry(Box::new(reply)))));
                }
                Some(Ok(_)) => {}
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Returns whether a later attempt may succeed.
fn is_transient(status: &Status) -> bool {
    status.code() == Code::Unavailable || matches!(status.retry(), Retry::Safe | Retry::After(_))
}

/// Returns the pause before the next attempt.
fn pause(failures: u32, status: Option<&Status>) -> Duration {
    let [min, max] = PAUSES;
    match status.map(Status::retry) {
        Some(Retry::After(pause)) => pause.clamp(min, max),
        _ => backoff::pause(failures, min, max),
    }
}

fn no_first_event(method: &str, event: &str) -> Status {
    Status::internal(format!("the stream of switchboard.bus.v1.Bus/{method} does not begin with {event}"))
}
