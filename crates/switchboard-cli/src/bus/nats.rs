//! Operations on the subjects of a NATS server.

use super::{
    args::{MessageArgs, PrintArgs, ReceiveArgs, ReplyArgs, RequestArgs, SendArgs},
    input,
    link::{CONNECT_TIMEOUT, Link},
    output::{self, Received},
    receive::topic,
    target::{Remote, refuse},
};
use crate::call::Failure;
use bytes::Bytes;
use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};
use switchboard::{Code, Status};
use switchboard_wire::nats::{
    Client, ClientEvent, Connect, ErrorKind, Headers, Info, Limits, Message, OutgoingMessage, SendError,
    ServerError,
};

/// Time limit of a request that sets none.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Id of the one subscription of a connection.
const SID: &[u8] = b"1";

/// Publishes one message after the other, and waits until the server has processed all.
pub(super) async fn publish(remote: &Remote, args: &SendArgs) -> Result<(), Failure> {
    refuse(&[
        ("--key", args.key.is_some(), "messages of NATS have no key"),
        ("--id", args.id.is_some(), "NATS drops no duplicates outside of JetStream"),
    ])?;
    let subject = args.message.topic()?;
    let headers = headers(&args.message)?;
    let mut nats = Nats::connect(remote).await?;
    let mut messages = input::messages(args.message.message.as_deref(), args.message.lines);
    while let Some(message) = nats.while_idle(messages.recv()).await? {
        let payload = input::check(message, args.message.codec)?;
        nats.publish(subject, None, headers.as_ref(), &payload)?;
        // The response to PING follows an error of the publication.
        nats.confirm().await?;
        output::sent(subject, None, args.common.json)?;
    }
    Ok(())
}

/// Prints the messages of a subject or pattern, in a queue group or alone.
pub(super) async fn subscribe(
    remote: &Remote,
    args: &ReceiveArgs,
    group: Option<&str>,
) -> Result<(), Failure> {
    refuse(&[
        ("--from", args.from.is_some(), "subjects of NATS keep no messages"),
        ("--ack", args.ack, "subscriptions of NATS have no acknowledgements outside of JetStream"),
        ("--durable", args.durable, "queue groups of NATS keep no place"),
    ])?;
    let subject = topic(args.topic.as_deref())?;
    let mut nats = Nats::connect(remote).await?;
    nats.subscribe(subject, group)?;
    nats.confirm_subscription(subject, "subscribed to").await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let message = nats.message().await?;
        print(&message, args.common.json, args.print)?;
        left -= 1;
    }
    Ok(())
}

/// Sends one request after the other, and prints the first reply to each.
pub(super) async fn request(remote: &Remote, args: &RequestArgs) -> Result<(), Failure> {
    let subject = args.message.topic()?;
    let headers = headers(&args.message)?;
    let limit = args.common.timeout.unwrap_or(REQUEST_TIMEOUT);
    let mut nats = Nats::connect(remote).await?;
    let inbox = inbox();
    nats.subscribe(&format!("{inbox}.*"), None)?;
    let mut messages = input::messages(args.message.message.as_deref(), args.message.lines);
    let mut number = 0_u64;
    while let Some(message) = nats.while_idle(messages.recv()).await? {
        let payload = input::check(message, args.message.codec)?;
        number += 1;
        let own = format!("{inbox}.{number}");
        nats.publish(subject, Some(&own), headers.as_ref(), &payload)?;
        let replied = tokio::time::timeout(limit, nats.reply(&own)).await;
        let reply = replied.map_err(|_| {
            Status::deadline_exceeded(format!(
                "no reply to the request on subject \"{subject}\" within {limit:?}"
            ))
        })??;
        if reply.headers.as_ref().and_then(Headers::status) == Some(503) {
            let text = format!("the subject \"{subject}\" has no subscriber that replies");
            return Err(Status::unavailable(text).into());
        }
        if args.common.json {
            print(&reply, true, args.print)?;
        } else {
            output::print_bytes(&reply.payload, args.print)?;
        }
    }
    Ok(())
}

/// Prints requests, and replies to them.
pub(super) async fn reply(remote: &Remote, args: &ReplyArgs) -> Result<(), Failure> {
    let subject = topic(args.topic.as_deref())?;
    let mut nats = Nats::connect(remote).await?;
    // Several repliers of a subject share its requests.
    nats.subscribe(subject, Some("switchboard-bus-rep"))?;
    nats.confirm_subscription(subject, "replying to").await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let request = nats.message().await?;
        print(&request, args.common.json, args.print)?;
        if let Some(to) = &request.reply {
            let text = args.text.as_ref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
            let payload = text.unwrap_or_else(|| request.payload.clone());
            nats.publish(&String::from_utf8_lossy(to), None, None, &payload)?;
            nats.link.flush().await?;
        }
        left -= 1;
    }
    nats.confirm().await
}

/// A subject for replies that others cannot guess.
fn inbox() -> String {
    // Each state has keys of its own, from random bytes of the system.
    let random = || RandomState::new().hash_one(0_u8);
    format!("_INBOX.{:016x}{:016x}", random(), random())
}

fn headers(args: &MessageArgs) -> Result<Option<Headers>, Failure> {
    if args.headers.is_empty() {
        return Ok(None);
    }
    let entries = args.headers.iter().map(|(name, value)| (name.as_str(), &value[..]));
    Headers::new(entries).map(Some).map_err(|error| Failure::Usage(error.to_string()))
}

fn print(message: &Message, is_json: bool, print: PrintArgs) -> Result<(), Failure> {
    let headers = message.headers.iter().flat_map(Headers::iter);
    output::received(
        &Received {
            topic: Some(&message.subject),
            position: None,
            frames: std::slice::from_ref(&message.payload),
            headers: headers.map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value))).collect(),
        },
        is_json,
        print,
    )
}

/// A connection.
pub(crate) struct Nats {
    link: Link,
    client: Client,
    /// A message that arrived while a confirmation was awaited. At most one: nothing is read after it.
    early: Option<Message>,
}

impl Nats {
    pub(crate) async fn connect(remote: &Remote) -> Result<Nats, Failure> {
        let link = Link::connect(remote).await?;
        let mut nats = Nats { link, client: Client::new(Limits::client()), early: None };
        let place = remote.place();
        let handshake = async {
            let info = loop {
                if let ClientEvent::Info(info) = nats.event().await? {
                    break info;
                }
            };
            nats.client
                .connect(&login(remote, &info)?, &mut nats.link.out)
                .map_err(|error| not_sent(&error))?;
            nats.confirm().await
        };
        tokio::time::timeout(CONNECT_TIMEOUT, handshake).await.unwrap_or_else(|_| {
            let text = format!("{place} did not complete the handshake of NATS within {CONNECT_TIMEOUT:?}");
            Err(Status::unavailable(text).into())
        })?;
        Ok(nats)
    }

    pub(crate) fn subscribe(&mut self, subject: &str, group: Option<&str>) -> Result<(), Failure> {
        let subscribed =
            self.client.subscribe(subject.as_bytes(), group.map(str::as_bytes), SID, &mut self.link.out);
        subscribed.map_err(|error| not_sent(&error))
    }

    fn publish(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: Option<&Headers>,
        payload: &Bytes,
    ) -> Result<(), Failure> {
        let subject = subject.as_bytes();
        let message =
            OutgoingMessage { subject, reply: reply.map(str::as_bytes), headers, payload: payload.into() };
        self.client.publish(&message, &mut self.link.out).map_err(|error| not_sent(&error))
    }

    /// Waits until the server has processed all commands. A message ends the wait too: the server has processed the
    /// subscription then.
    pub(crate) async fn confirm(&mut self) -> Result<(), Failure> {
        if !self.client.ping(&mut self.link.out) {
            return Err(not_sent(&SendError::NotOpen));
        }
        loop {
            match self.event().await? {
                ClientEvent::Pong => return Ok(()),
                ClientEvent::Message { message, .. } => {
                    self.early = Some(message);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    async fn confirm_subscription(&mut self, subject: &str, verb: &str) -> Result<(), Failure> {
        self.confirm().await?;
        eprintln!("{verb} {subject}");
        Ok(())
    }

    /// Waits for something else and responds to the PINGs of the server meanwhile: without a response it closes the
    /// connection after some minutes. Messages that arrive are dropped: no request waits for one.
    async fn while_idle<T>(&mut self, other: impl Future<Output = T>) -> Result<T, Failure> {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                biased;
                value = &mut other => return Ok(value),
                event = self.event() => drop(event?),
            }
        }
    }

    /// Returns the next message. Cancel safe.
    pub(crate) async fn message(&mut self) -> Result<Message, Failure> {
        if let Some(message) = self.early.take() {
            return Ok(message);
        }
        loop {
            if let ClientEvent::Message { message, .. } = self.event().await? {
                return Ok(message);
            }
        }
    }

    /// Returns the reply to the request with this inbox.
    async fn reply(&mut self, inbox: &str) -> Result<Message, Failure> {
        loop {
            let message = self.message().await?;
            // Later replies to earlier requests are dropped.
            if message.subject == inbox.as_bytes() {
                return Ok(message);
            }
        }
    }

    /// Returns the next event that is no error.
    async fn event(&mut self) -> Result<ClientEvent, Failure> {
        loop {
            let event = self.client.recv(&mut self.link.input, &mut self.link.out);
            match event.map_err(|error| Status::unavailable(error.to_string()))? {
                Some(ClientEvent::Error(error)) => return Err(reported(&error)),
                Some(event) => return Ok(event),
                None => self.link.exchange().await?,
            }
        }
    }
}

/// Returns the options of the connection, with the credentials of the address.
fn login(remote: &Remote, info: &Info) -> Result<Connect, Failure> {
    let place = remote.place();
    if info.tls_required {
        let text = format!("{place} requires TLS, which is not supported for nats://; use a tunnel");
        return Err(Failure::Usage(text));
    }
    let mut connect = Connect {
        verbose: false,
        pedantic: true,
        headers: info.headers,
        no_responders: info.headers,
        protocol: 1,
        name: Some("switchboard bus".to_owned()),
        lang: "rust".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Connect::default()
    };
    match (&remote.user, &remote.password) {
        // A user without a password is a token, as in other clients.
        (Some(token), None) => connect.credentials.auth_token = Some(token.clone()),
        (user, password) => {
            (connect.credentials.user, connect.credentials.pass) = (user.clone(), password.clone());
        }
    }
    Ok(connect)
}

fn not_sent(error: &SendError) -> Failure {
    match error {
        SendError::NotOpen => Status::unavailable(error.to_string()).into(),
        SendError::Payload(..) => Status::new(Code::ResourceExhausted, error.to_string()).into(),
        _ => Status::new(Code::InvalidArgument, error.to_string()).into(),
    }
}

fn reported(error: &ServerError) -> Failure {
    let code = match error.kind {
        Some(ErrorKind::Authorization | ErrorKind::AuthenticationTimeout) => Code::Unauthenticated,
        Some(ErrorKind::PublishDenied | ErrorKind::SubscribeDenied) => Code::PermissionDenied,
        Some(ErrorKind::Payload | ErrorKind::SlowConsumer | ErrorKind::Subscriptions) => {
            Code::ResourceExhausted
        }
        Some(ErrorKind::InvalidSubject | ErrorKind::ControlLine | ErrorKind::Parser) => Code::InvalidArgument,
        _ => Code::Unavailable,
    };
    Status::new(code, format!("the server refused: {}", error.text)).into()
}
