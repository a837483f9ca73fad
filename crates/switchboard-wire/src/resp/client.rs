//! Client side of a connection: commands become bytes, and replies and pushes become events.

mod pubsub;

use super::{
    ErrorKind, ProtocolError, ReplyLimits, SubscriptionKind, Value, Version, reply::ReplyReader,
    write::write_command,
};
use crate::{Input, Outbox, Outgoing};
use bytes::Bytes;
use std::{collections::VecDeque, fmt};

/// Event from the server.
#[derive(Clone, Debug, PartialEq)]
// closed: a driver must handle each event
pub enum ClientEvent {
    /// A message to a subscription.
    Message {
        /// Kind of the subscription.
        kind: SubscriptionKind,
        /// Pattern that the channel matches, of a subscription to a pattern.
        pattern: Option<Bytes>,
        /// Name of the channel.
        channel: Bytes,
        /// Any bytes.
        payload: Bytes,
    },
    /// A push that is neither a message nor a confirmation.
    Push(Vec<Value>),
    /// The server refused a command with subscriptions, from the first name that it has not confirmed on.
    Refused {
        /// Kind of the subscriptions.
        kind: SubscriptionKind,
        /// Class and text of the error.
        error: Bytes,
    },
    /// Reply to the oldest command without one, which may be an error.
    Reply(Value),
    /// The server confirmed a subscription.
    Subscribed {
        /// Kind of the subscription.
        kind: SubscriptionKind,
        /// Name of the channel, or the pattern.
        name: Bytes,
    },
    /// A subscription ended, requested or by the server.
    Unsubscribed {
        /// Kind of the subscription.
        kind: SubscriptionKind,
        /// Name of the channel, or the pattern.
        name: Bytes,
    },
}

/// Reason why a command was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NotSent {
    /// The connection is closed by an error of the server.
    Closed,
    /// There is no command: the list of arguments or names is empty.
    Empty,
    /// Replies to as many commands as [`ReplyLimits::commands_max`] are outstanding.
    Full,
    /// The replies to the command are not one for each: `SUBSCRIBE` and its relatives have methods of their own,
    /// `MONITOR` and `CLIENT REPLY` are not supported.
    Unsupported,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSent::Closed => "connection is closed",
            NotSent::Empty => "command has no arguments",
            NotSent::Full => "replies to commands_max commands are outstanding; read them first",
            NotSent::Unsupported => "command does not have one reply; use the method for subscriptions",
        })
    }
}

impl std::error::Error for NotSent {}

/// Client side of one connection.
#[derive(Debug)]
pub struct Client {
    limits: ReplyLimits,
    version: Version,
    closed: bool,
    reader: ReplyReader,
    expected: VecDeque<Expected>,
    /// Subscriptions as the server counts them: those to channels and patterns, and those to shard channels.
    plain_count: u64,
    shard_count: u64,
}

/// Reply that the server owes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Reply,
    /// Reply to `HELLO` with this version.
    Hello(Version),
    Reset,
    /// Confirmations of this many names.
    Subscribed(SubscriptionKind, u64),
    Unsubscribed(SubscriptionKind, u64),
}

impl Client {
    /// Begins a connection with RESP2; [`hello`](Self::hello) changes the version.
    pub fn new(limits: ReplyLimits) -> Client {
        Client {
            limits,
            version: Version::Resp2,
            closed: false,
            reader: ReplyReader::default(),
            expected: VecDeque::new(),
            plain_count: 0,
            shard_count: 0,
        }
    }

    /// Processes bytes of `input` up to the end of one reply or push. `None` means that more bytes are needed, or that
    /// the connection is closed.
    ///
    /// Values are slices of the input: copy the ones that are kept for long.
    ///
    /// # Errors
    /// Returns the error of the server and closes the connection.
    pub fn recv(&mut self, input: &mut Input) -> Result<Option<ClientEvent>, ProtocolError> {
        if self.closed {
            input.skip(input.len());
            return Ok(None);
        }
        let read = self.reader.read(input, &self.limits);
        let event = read.and_then(|value| value.map(|value| self.event(value)).transpose());
        event.inspect_err(|_| self.closed = true)
    }

    /// Sends a command; its reply is a [`ClientEvent::Reply`]. Replies have the order of the commands.
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn command<'a, I>(&mut self, arguments: I, out: &mut Outbox) -> Result<(), NotSent>
    where
        I: IntoIterator,
        I::Item: Into<Outgoing<'a>>,
    {
        let arguments: Vec<Outgoing<'a>> = arguments.into_iter().map(Into::into).collect();
        let expected = expected(&arguments)?;
        self.send(expected, &arguments, out)
    }

    /// Sends `HELLO` with the version, and credentials and a name for the connection if they are given. The version
    /// changes when the server agrees; its reply is a [`ClientEvent::Reply`].
    ///
    /// # Errors
    /// Fails, and sends nothing, for the reasons of [`NotSent`].
    pub fn hello(
        &mut self,
        version: Version,
        auth: Option<(&[u8], &[u8])>,
        client_name: Option<&[u8]>,
        out: &mut Outbox,
    ) -> Result<(), NotSent> {
        let number = version.number().to_string();
        let mut arguments = vec![&b"HELLO"[..], number.as_bytes()];
        if let Some((username, password)) = auth {
            arguments.extend([&b"AUTH"[..], username, password]);
        }
        if let Some(name) = client_name {
            arguments.extend([&b"SETNAME"[..], name]);
        }
        self.command(arguments.into_iter().map(Outgoing::Lent), out)
    }

    /// Returns the version that the server agreed to.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns true if nothing more is read, after an error of the server.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of commands whose replies have not arrived.
    pub fn outstanding(&self) -> usize {
        self.expected.len()
    }

    /// Sends a command whose replies are known.
    fn send(
        &mut self,
        expected: Expected,
        arguments: &[Outgoing<'_>],
        out: &mut Outbox,
    ) -> Result<(), NotSent> {
        if self.closed {
            return Err(NotSent::Closed);
        }
        if self.expected.len() >= self.limits.commands_max as usize {
            return Err(NotSent::Full);
        }
        self.expected.push_back(expected);
        write_command(arguments.iter().copied(), out);
        Ok(())
    }

    /// Returns the event of a complete value.
    fn event(&mut self, value: Value) -> Result<ClientEvent, ProtocolError> {
        if let Value::Push(elements) = value {
            return Ok(self.push(elements));
        }
        let is_subscriber = self.plain_count > 0 || self.shard_count > 0;
        let expects_names =
            matches!(self.expected.front(), Some(Expected::Subscribed(..) | Expected::Unsubscribed(..)));
        if self.version == Version::Resp2
            && (is_subscriber || expects_names)
            && let Value::Array(elements) = &value
            && let Some(event) = self.read_push(elements)
        {
            return Ok(event);
        }
        self.reply(value)
    }

    /// Assigns a reply to the oldest command without one.
    fn reply(&mut self, value: Value) -> Result<ClientEvent, ProtocolError> {
        let unexpected = |what: &str| Err(ProtocolError::new(ErrorKind::Reply, what));
        match self.expected.pop_front() {
            None => return unexpected("reply arrived, and no command is without one"),
            Some(Expected::Reply) => {}
            Some(Expected::Hello(version)) => {
                if value.error().is_none() {
                    self.version = version;
                }
            }
            Some(Expected::Reset) => {
                if value.error().is_none() {
                    self.version = Version::Resp2;
                    (self.plain_count, self.shard_count) = (0, 0);
                }
            }
            Some(Expected::Subscribed(kind, _) | Expected::Unsubscribed(kind, _)) => {
                let Some(error) = value.error() else {
                    return unexpected("reply to a subscription is neither a confirmation nor an error");
                };
                return Ok(ClientEvent::Refused { kind, error: error.clone() });
            }
        }
        Ok(ClientEvent::Reply(value))
    }
}

/// Returns the reply that a command has.
fn expected(arguments: &[Outgoing<'_>]) -> Result<Expected, NotSent> {
    let [name, rest @ ..] = arguments else { return Err(NotSent::Empty) };
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let mut subscriptions =
        SubscriptionKind::ALL.iter().flat_map(|kind| [kind.subscribe(), kind.unsubscribe()]);
    let is_reply_mode = is("CLIENT") && rest.first().is_some_and(|word| word.eq_ignore_ascii_case(b"REPLY"));
    if subscriptions.any(is) || is("MONITOR") || is_reply_mode {
        return Err(NotSent::Unsupported);
    }
    if is("RESET") {
        return Ok(Expected::Reset);
    }
    let version = rest.first().and_then(|version| super::line::integer(version));
    Ok(match version.and_then(Version::from_number) {
        Some(version) if is("HELLO") => Expected::Hello(version),
        _ => Expected::Reply,
    })
}
