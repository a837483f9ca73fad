//! Operations on the channels of a Redis server.

use super::{
    args::{ReceiveArgs, SendArgs, TopicsArgs},
    input,
    link::{CONNECT_TIMEOUT, Link},
    output::{self, Received},
    receive::topic,
    target::{Remote, refuse},
};
use crate::call::Failure;
use bytes::Bytes;
use switchboard::{Code, Status};
use switchboard_wire::{
    Outgoing,
    resp::{Client, ClientEvent, NotSent, ReplyLimits, SubscriptionKind, Value},
};

/// Publishes one message after the other to a channel, and prints the number of its receivers.
pub(super) async fn publish(remote: &Remote, args: &SendArgs) -> Result<(), Failure> {
    refuse(&[
        ("--key", args.key.is_some(), "messages of Redis channels have no key"),
        ("--id", args.id.is_some(), "Redis channels drop no duplicates"),
        ("--header", !args.message.headers.is_empty(), "messages of Redis channels have no headers"),
    ])?;
    let channel = args.message.topic()?;
    let mut redis = Redis::connect(remote).await?;
    let mut messages = input::messages(args.message.message.as_deref(), args.message.lines);
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, args.message.codec)?;
        let reply = redis.command(&[b"PUBLISH", channel.as_bytes(), &payload]).await?;
        output::sent(channel, reply.integer(), args.common.json)?;
    }
    Ok(())
}

/// Prints the messages of a channel, or of a pattern with `*`, `?` or `[`.
pub(super) async fn subscribe(
    remote: &Remote,
    args: &ReceiveArgs,
    group: Option<&str>,
) -> Result<(), Failure> {
    refuse(&[
        (
            "--from",
            args.from.is_some(),
            "Redis channels keep no messages; `bus pull` reads a stream, which does",
        ),
        ("--group", group.is_some(), "Redis channels have no groups; `bus pull` reads a stream, which has"),
        ("--ack", args.ack, "Redis channels have no acknowledgements; `bus pull` reads a stream, which has"),
        (
            "--durable",
            args.durable,
            "Redis channels keep no place; the groups of streams, as of `bus pull`, do",
        ),
    ])?;
    let channel = topic(args.topic.as_deref())?;
    let kind = match channel.contains(['*', '?', '[']) {
        true => SubscriptionKind::Pattern,
        false => SubscriptionKind::Channel,
    };
    let mut redis = Redis::connect(remote).await?;
    let subscribed = redis.client.subscribe(kind, &[channel.as_bytes()], &mut redis.link.out);
    subscribed.map_err(not_sent)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match redis.event().await? {
            ClientEvent::Subscribed { .. } => eprintln!("subscribed to {channel}"),
            ClientEvent::Refused { error, .. } => return Err(reported(&error)),
            ClientEvent::Message { channel, payload, .. } => {
                let received = Received {
                    topic: Some(&channel),
                    position: None,
                    frames: std::slice::from_ref(&payload),
                    headers: Vec::new(),
                };
                output::received(&received, args.common.json, args.print)?;
                left -= 1;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Lists the channels that have subscribers.
pub(super) async fn topics(remote: &Remote, args: &TopicsArgs) -> Result<(), Failure> {
    let pattern = args.pattern.as_deref().unwrap_or("*");
    let mut redis = Redis::connect(remote).await?;
    let channels = redis.command(&[b"PUBSUB", b"CHANNELS", pattern.as_bytes()]).await?;
    let mut names: Vec<Bytes> =
        channels.elements().unwrap_or_default().iter().filter_map(|name| name.bytes().cloned()).collect();
    names.sort();
    let mut channels = Vec::with_capacity(names.len());
    for some in names.chunks(1_000) {
        let mut command: Vec<&[u8]> = vec![b"PUBSUB", b"NUMSUB"];
        command.extend(some.iter().map(|name| &name[..]));
        let counts = redis.command(&command).await?;
        let counts = counts.elements().unwrap_or_default().chunks(2);
        channels.extend(counts.filter_map(|pair| {
            let [name, count] = pair else { return None };
            Some((name.bytes()?.clone(), count.integer()?))
        }));
    }
    output::channels(&channels, args.common.json)
}

/// A connection, in RESP2: all servers have it.
#[derive(Debug)]
pub(crate) struct Redis {
    link: Link,
    client: Client,
}

impl Redis {
    /// Connects, authenticates and selects the database of the address.
    pub(crate) async fn connect(remote: &Remote) -> Result<Redis, Failure> {
        let link = Link::connect(remote).await?;
        let mut redis = Redis { link, client: Client::new(ReplyLimits::default()) };
        let handshake = async {
            if let Some(password) = &remote.password {
                let user = remote.user.as_deref().filter(|user| !user.is_empty());
                let arguments = [Some("AUTH"), user, Some(password)].into_iter().flatten();
                redis.command(&arguments.map(str::as_bytes).collect::<Vec<_>>()).await?;
            }
            if !remote.path.is_empty() {
                redis.command(&[b"SELECT", remote.path.as_bytes()]).await?;
            }
            // A server that accepts connections and does not speak the protocol is noticed before a subscription.
            redis.command(&[b"PING"]).await.map(|_| ())
        };
        let place = remote.place();
        tokio::time::timeout(CONNECT_TIMEOUT, handshake).await.unwrap_or_else(|_| {
            let text = format!("{place} did not respond to PING within {CONNECT_TIMEOUT:?}");
            Err(Status::unavailable(text).into())
        })?;
        Ok(redis)
    }

    /// Sends a command and returns its reply; an error of the server is an `Err`.
    pub(super) async fn command(&mut self, arguments: &[&[u8]]) -> Result<Value, Failure> {
        let arguments = arguments.iter().copied().map(Outgoing::Lent);
        self.client.command(arguments, &mut self.link.out).map_err(not_sent)?;
        loop {
            if let ClientEvent::Reply(value) = self.event().await? {
                return match value.error() {
                    Some(error) => Err(reported(error)),
                    None => Ok(value),
                };
            }
        }
    }

    /// Subscribes to a channel, and waits for the confirmation.
    pub(crate) async fn subscribe(&mut self, channel: &str) -> Result<(), Failure> {
        let subscribed =
            self.client.subscribe(SubscriptionKind::Channel, &[channel.as_bytes()], &mut self.link.out);
        subscribed.map_err(not_sent)?;
        loop {
            match self.event().await? {
                ClientEvent::Subscribed { .. } => return Ok(()),
                ClientEvent::Refused { error, .. } => return Err(reported(&error)),
                _ => {}
            }
        }
    }

    /// Returns the payload of the next message.
    pub(crate) async fn message(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let ClientEvent::Message { payload, .. } = self.event().await? {
                return Ok(payload);
            }
        }
    }

    async fn event(&mut self) -> Result<ClientEvent, Failure> {
        loop {
            let event = self.client.recv(&mut self.link.input);
            match event.map_err(|error| Status::unavailable(error.to_string()))? {
                Some(event) => return Ok(event),
                None => self.link.exchange().await?,
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn not_sent(error: NotSent) -> Failure {
    Status::new(Code::Internal, error.to_string()).into()
}

/// Returns the failure of an error reply, by its class.
fn reported(error: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(error);
    let code = match text.split(' ').next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => Code::Unauthenticated,
        "NOPERM" => Code::PermissionDenied,
        "OOM" => Code::ResourceExhausted,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => Code::Unavailable,
        "MOVED" | "ASK" | "WRONGTYPE" | "READONLY" | "NOGROUP" => Code::FailedPrecondition,
        "BUSYGROUP" => Code::AlreadyExists,
        _ if text.starts_with("ERR unknown command") => Code::Unimplemented,
        _ => Code::InvalidArgument,
    };
    Status::new(code, format!("the server refused: {text}")).into()
}

/// Returns true if a stream already has the group.
pub(super) fn is_group_known(failure: &Failure) -> bool {
    failure.status_code() == Some(Code::AlreadyExists)
}
