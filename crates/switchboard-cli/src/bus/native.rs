//! Operations on the topics of a server, by its service `switchboard.bus.v1.Bus`.

use super::{
    args::{Common, MessageArgs, RequestArgs, SendArgs, TopicsArgs},
    input, output,
};
use crate::call::{Failure, with_scheme};
use bytes::Bytes;
use std::time::Duration;
use switchboard::{Channel, Code, Codec, Origin, Status, codegen::buffa_types::google::protobuf};
use switchboard_bus::{
    Connect,
    v1::{BusClient, Entry, Header, Publication as Sent, RequestRequest, request_event::Event},
};
use switchboard_message::{Bus, Publication};

/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request that sets none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Topics of a page of a list.
const PAGE_TOPICS: usize = 1_000;

/// Connects to the server.
pub(super) async fn connect(common: &Common) -> Result<Channel, Failure> {
    connect_to(&common.address).await
}

/// Connects to the server at an address of the command line, which may have options of a channel.
pub(crate) async fn connect_to(server: &str) -> Result<Channel, Failure> {
    let (address, query) = server.split_once('?').unwrap_or((server, ""));
    let (address, path) = with_scheme(address).map_err(Failure::Usage)?;
    if path.is_some() {
        return Err(Failure::Usage(format!("{server:?} has a path: a server is an address alone")));
    }
    let separator = if query.is_empty() { "" } else { "&" };
    // One caller needs one connection.
    let url = format!("{address}?connections=1{separator}{query}");
    let channel = Channel::builder(&url).connect_timeout(CONNECT_TIMEOUT).connect().await;
    channel.map_err(|status| match (status.code(), status.origin()) {
        (Code::InvalidArgument, Origin::Local) => Failure::Usage(status.message().to_owned()),
        _ => status.into(),
    })
}

/// Publishes one message after the other.
pub(super) async fn publish(args: &SendArgs) -> Result<(), Failure> {
    let bus = Bus::over(connect(&args.common).await?);
    let topic = args.message.topic()?;
    let MessageArgs { message, lines, codec, headers, .. } = &args.message;
    let mut messages = input::messages(message.as_deref(), *lines);
    while let Some(message) = messages.recv().await {
        let mut publication = Publication::new(codec.codec(), input::check(message, *codec)?);
        publication.key = args.key.clone().unwrap_or_default().into();
        publication.id = args.id.clone().unwrap_or_default().into();
        for (name, value) in headers {
            let inserted = publication.headers.insert(name, value.clone());
            inserted.map_err(|error| Failure::Usage(error.to_string()))?;
        }
        let position = bus.publish_encoded(topic, publication).await?;
        output::published(topic, position, args.common.json)?;
    }
    Ok(())
}

/// Sends one request after the other, and prints the first reply to each.
pub(super) async fn request(args: &RequestArgs) -> Result<(), Failure> {
    let client = BusClient::new(connect(&args.common).await?);
    let limit = args.common.timeout.unwrap_or(REQUEST_TIMEOUT);
    let topic = args.message.topic()?;
    let MessageArgs { message, lines, codec, .. } = &args.message;
    let mut messages = input::messages(message.as_deref(), *lines);
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, *codec)?;
        let replied = tokio::time::timeout(limit, first_reply(&client, &args.message, payload, limit)).await;
        let reply = replied.ok().transpose()?.flatten().ok_or_else(|| {
            let text = format!("no reply to the request on topic \"{topic}\" within {limit:?}");
            Status::deadline_exceeded(text)
        })?;
        if args.common.json {
            let mut object = serde_json::json!({"topic": topic, "codec": reply.codec});
            let codec = if reply.codec == "json" { Codec::Json } else { Codec::Raw };
            output::payload(&mut object, codec, &reply.payload);
            output::print_json(&object)?;
        } else {
            output::print_bytes(&reply.payload, args.print)?;
        }
    }
    Ok(())
}

/// Sends a request as it is, because `Bus::request` encodes one type. Returns `None` when there is no reply in time.
async fn first_reply(
    client: &BusClient,
    args: &MessageArgs,
    payload: Bytes,
    limit: Duration,
) -> Result<Option<Entry>, Failure> {
    let header = |(name, value): &(String, Bytes)| Header {
        name: name.clone(),
        value: value.clone(),
        ..Default::default()
    };
    let entry = Sent {
        payload,
        codec: args.codec.codec().name().to_owned(),
        headers: args.headers.iter().map(header).collect(),
        ..Default::default()
    };
    let time_limit = protobuf::Duration {
        seconds: limit.as_secs() as i64,
        nanos: limit.subsec_nanos() as i32,
        ..Default::default()
    };
    let request = RequestRequest {
        topic: args.topic()?.to_owned(),
        entry: entry.into(),
        time_limit: time_limit.into(),
        ..Default::default()
    };
    let mut events = client.request(request).await?;
    while let Some(event) = events.next().await? {
        if let Some(Event::Reply(reply)) = event.event {
            return Ok(Some(*reply));
        }
    }
    Ok(None)
}

/// Lists topics by their names.
pub(super) async fn topics(args: &TopicsArgs) -> Result<(), Failure> {
    let bus = Bus::over(connect(&args.common).await?);
    let (mut topics, mut token) = (Vec::new(), None);
    loop {
        let mut list = bus.topics(args.pattern.as_deref().unwrap_or(">")).limit(PAGE_TOPICS);
        if let Some(token) = token.take() {
            list = list.page(token);
        }
        let page = list.await?;
        topics.extend(page.topics);
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    topics.sort_by(|a, b| a.topic.name().cmp(b.topic.name()));
    output::topics(&topics, args.common.json)
}
