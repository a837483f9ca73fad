//! Operations on sockets of ZeroMQ.

use super::{
    args::{Common, PrintArgs, ProxyArgs, ProxyKind, ReceiveArgs, ReplyArgs, RequestArgs, SendArgs},
    input,
    output::{self, Received},
    target::{Target, refuse, without_login},
};
use crate::call::Failure;
use bytes::Bytes;
use std::{future::Future, time::Duration};
use switchboard::Status;
use switchboard_socket::{
    Error, ErrorKind, Event, Message, Monitor, Socket, SocketOptions, SocketType, options::QueueFullPolicy,
    proxy,
};

/// Time limit of waiting for a peer or a reply, unless the command sets one.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes messages of two frames, the topic and the message, once a peer has subscribed to the topic.
pub(super) async fn publish(endpoint: &str, args: &SendArgs) -> Result<(), Failure> {
    refuse_options(args)?;
    let topic = Bytes::copy_from_slice(args.message.topic()?.as_bytes());
    let mut options = SocketOptions::default();
    options.subscriptions.verboser = true;
    options.queues.when_full = QueueFullPolicy::Wait;
    // XPUB is PUB that learns of its subscribers: a PUB drops what it sends before their subscriptions arrive.
    let socket = open(SocketType::Xpub, options, endpoint, &args.common).await?;
    let mut messages = input::messages(args.message.message.as_deref(), args.message.lines);
    let mut subscribers = 0_usize;
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, args.message.codec)?;
        while let Some(change) = socket.try_recv().map_err(failed)? {
            count(&mut subscribers, &change, &topic);
        }
        let waiting = async {
            while subscribers == 0 {
                count(&mut subscribers, &socket.recv().await.map_err(failed)?, &topic);
            }
            Ok(())
        };
        let limit = args.common.timeout.unwrap_or(PEER_TIMEOUT);
        within(limit, &format!("a subscriber of the topic at {endpoint}"), waiting).await?;
        socket.send([topic.clone(), payload]).await.map_err(failed)?;
        output::sent(&String::from_utf8_lossy(&topic), None, args.common.json)?;
    }
    socket.close().await;
    Ok(())
}

/// Counts the subscriptions that include the topic.
fn count(subscribers: &mut usize, change: &Message, topic: &[u8]) {
    match change.body().split_first() {
        Some((1, prefix)) if topic.starts_with(prefix) => *subscribers += 1,
        Some((0, prefix)) if topic.starts_with(prefix) => *subscribers = subscribers.saturating_sub(1),
        _ => {}
    }
}

/// Sends jobs, each to one of the peers.
pub(super) async fn push(endpoint: &str, args: &SendArgs) -> Result<(), Failure> {
    refuse_options(args)?;
    let mut options = SocketOptions::default();
    // Only to peers that are connected, so that a message is not lost with this program.
    options.routing.immediate = true;
    options.timeouts.send = Some(args.common.timeout.unwrap_or(PEER_TIMEOUT));
    let socket = open(SocketType::Push, options, endpoint, &args.common).await?;
    let (first, text) =
        first_frame(args.message.topic.as_deref(), args.message.message.as_deref(), args.message.lines);
    let mut messages = input::messages(text, args.message.lines);
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, args.message.codec)?;
        socket.send(frames(first, payload)).await.map_err(failed)?;
        output::sent(first.unwrap_or_default(), None, args.common.json)?;
    }
    socket.close().await;
    Ok(())
}

/// Prints messages: those with a prefix, for SUB, or all, for PULL.
pub(super) async fn receive(endpoint: &str, args: &ReceiveArgs, kind: SocketType) -> Result<(), Failure> {
    refuse(&[
        ("--from", args.from.is_some(), "ZeroMQ keeps no messages for later subscribers"),
        ("--group", args.group.is_some(), "the PULL sockets of a PUSH share its messages without a group"),
        ("--ack", args.ack, "ZeroMQ has no acknowledgements"),
        ("--durable", args.durable, "ZeroMQ keeps no place of a subscriber"),
        ("a topic", kind == SocketType::Pull && args.topic.is_some(), "PULL sockets have no topics"),
    ])?;
    let socket = Socket::new(kind, SocketOptions::default()).map_err(failed)?;
    let mut monitor = socket.monitor();
    if kind == SocketType::Sub {
        socket.subscribe(args.topic.as_deref().unwrap_or_default()).map_err(failed)?;
    }
    attach(&socket, endpoint, &args.common).await?;
    connected(&mut monitor, endpoint, &args.common).await?;
    eprintln!("subscribed to {}", args.topic.as_deref().unwrap_or(endpoint));
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let message = socket.recv().await.map_err(failed)?;
        print(&message, args.common.json, args.print)?;
        left -= 1;
    }
    Ok(())
}

/// Sends one request after the other, and prints their replies.
pub(super) async fn request(endpoint: &str, args: &RequestArgs) -> Result<(), Failure> {
    refuse(&[("--header", !args.message.headers.is_empty(), "messages of ZeroMQ have no headers")])?;
    let limit = args.common.timeout.unwrap_or(PEER_TIMEOUT);
    let mut options = SocketOptions::default();
    (options.timeouts.send, options.timeouts.receive) = (Some(limit), Some(limit));
    // A request that is not sent within the limit is not sent later.
    options.timeouts.linger = Some(Duration::ZERO);
    let socket = open(SocketType::Req, options, endpoint, &args.common).await?;
    let (first, text) =
        first_frame(args.message.topic.as_deref(), args.message.message.as_deref(), args.message.lines);
    let mut messages = input::messages(text, args.message.lines);
    while let Some(message) = messages.recv().await {
        let payload = input::check(message, args.message.codec)?;
        socket.send(frames(first, payload)).await.map_err(failed)?;
        let reply = socket.recv().await.map_err(failed)?;
        print(&reply, args.common.json, args.print)?;
    }
    Ok(())
}

/// Prints requests, and replies to them.
pub(super) async fn reply(endpoint: &str, args: &ReplyArgs) -> Result<(), Failure> {
    refuse(&[("a topic", args.topic.is_some(), "REP sockets have no topics")])?;
    let socket = Socket::new(SocketType::Rep, SocketOptions::default()).map_err(failed)?;
    let mut monitor = socket.monitor();
    attach(&socket, endpoint, &args.common).await?;
    connected(&mut monitor, endpoint, &args.common).await?;
    eprintln!("replying to {endpoint}");
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let request = socket.recv().await.map_err(failed)?;
        print(&request, args.common.json, args.print)?;
        let reply = args.text.as_deref().map_or(request, Message::from);
        socket.send(reply).await.map_err(failed)?;
        left -= 1;
    }
    socket.close().await;
    Ok(())
}

/// Forwards messages between two endpoints.
pub(super) async fn forward(args: &ProxyArgs) -> Result<(), Failure> {
    let (front_type, back_type) = match args.kind {
        ProxyKind::Forwarder => (SocketType::Xsub, SocketType::Xpub),
        ProxyKind::Queue => (SocketType::Router, SocketType::Dealer),
        ProxyKind::Streamer => (SocketType::Pull, SocketType::Push),
    };
    let front = side(&args.front, front_type, args.connect_front).await?;
    let back = side(&args.back, back_type, args.connect_back).await?;
    let shown = |socket: &Socket, address: &str| match socket.endpoints().first() {
        Some(endpoint) => format!("{} bound to {endpoint}", socket.kind()),
        None => format!("{} connected to {address}", socket.kind()),
    };
    eprintln!("forwarding between {} and {}", shown(&front, &args.front), shown(&back, &args.back));
    proxy::proxy(&front, &back, None).await.map_err(failed)
}

async fn side(address: &str, kind: SocketType, must_connect: bool) -> Result<Socket, Failure> {
    let Target::Zmq(endpoint) = Target::parse(address).map_err(Failure::Usage)? else {
        let text = format!(
            "{} is not an endpoint of ZeroMQ: `bus proxy` forwards between zmq+tcp:// and zmq+ipc:// \
             addresses; `switchboard proxy` forwards calls",
            without_login(address)
        );
        return Err(Failure::Usage(text));
    };
    let mut options = SocketOptions::default();
    // A message without room waits; a forwarder drops nothing unless a subscriber is gone.
    options.queues.when_full = QueueFullPolicy::Wait;
    let socket = Socket::new(kind, options).map_err(failed)?;
    if must_connect {
        socket.connect_to(&endpoint).await.map_err(failed)?;
    } else {
        socket.bind_to(&endpoint).await.map_err(failed)?;
    }
    Ok(socket)
}

fn refuse_options(args: &SendArgs) -> Result<(), Failure> {
    refuse(&[
        ("--key", args.key.is_some(), "messages of ZeroMQ have no key"),
        ("--id", args.id.is_some(), "ZeroMQ drops no duplicates"),
        ("--header", !args.message.headers.is_empty(), "messages of ZeroMQ have no headers"),
    ])
}

/// Returns the frame before the message, and the text of the message: one argument alone is the message.
fn first_frame<'a>(
    topic: Option<&'a str>,
    text: Option<&'a str>,
    has_lines: bool,
) -> (Option<&'a str>, Option<&'a str>) {
    match text {
        None if !has_lines => (None, topic),
        text => (topic, text),
    }
}

fn frames(first: Option<&str>, payload: Bytes) -> Message {
    match first {
        Some(first) => Message::from([Bytes::copy_from_slice(first.as_bytes()), payload]),
        None => Message::from(payload),
    }
}

async fn open(
    kind: SocketType,
    options: SocketOptions,
    endpoint: &str,
    common: &Common,
) -> Result<Socket, Failure> {
    let socket = Socket::new(kind, options).map_err(failed)?;
    attach(&socket, endpoint, common).await?;
    Ok(socket)
}

/// Binds or connects the socket. The port that the system chose is printed, for peers.
async fn attach(socket: &Socket, endpoint: &str, common: &Common) -> Result<(), Failure> {
    if common.bind {
        let bound = socket.bind_to(endpoint).await.map_err(failed)?;
        eprintln!("bound to {bound}");
    } else {
        socket.connect_to(endpoint).await.map_err(failed)?;
    }
    Ok(())
}

/// Waits until the first connection is established; a socket that is bound waits for none.
async fn connected(monitor: &mut Monitor, endpoint: &str, common: &Common) -> Result<(), Failure> {
    if common.bind {
        return Ok(());
    }
    let (mut last, limit) = (String::new(), common.timeout.unwrap_or(PEER_TIMEOUT));
    let waiting = async {
        while let Some(event) = monitor.next().await {
            match event {
                Event::HandshakeSucceeded { .. } => break,
                Event::ConnectRetried { reason, .. } | Event::HandshakeFailed { reason, .. } => last = reason,
                _ => {}
            }
        }
    };
    if tokio::time::timeout(limit, waiting).await.is_ok() {
        return Ok(());
    }
    let why = if last.is_empty() { String::new() } else { format!(": {last}") };
    Err(Status::unavailable(format!("no connection to {endpoint} within {limit:?}{why}")).into())
}

async fn within(
    limit: Duration,
    what: &str,
    waiting: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::time::timeout(limit, waiting).await.unwrap_or_else(|_| {
        Err(Status::deadline_exceeded(format!("waited {limit:?} for {what} (--timeout)")).into())
    })
}

/// Prints a message: a first of several frames is its topic.
fn print(message: &Message, is_json: bool, print: PrintArgs) -> Result<(), Failure> {
    let (topic, frames) = match message.frames() {
        [topic, rest @ ..] if !rest.is_empty() => (Some(&topic[..]), rest),
        frames => (None, frames),
    };
    output::received(&Received { topic, position: None, frames, headers: Vec::new() }, is_json, print)
}

#[allow(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn failed(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported => Failure::Usage(error.to_string()),
        _ => Status::from(error).into(),
    }
}
