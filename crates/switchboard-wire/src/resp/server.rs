//! Server side of a connection: requests become events and replies.

mod command;
mod handshake;
mod information;
mod rpc;
mod subscriptions;

use super::{
    Credentials, Pattern, ProtocolError, Settings, SubscriptionKind, Version,
    request::{RequestReader, Rules},
    write::{write_error, write_head, write_line, write_text},
};
use crate::{Input, Metadata, Outbox, Outgoing, Status};
use bytes::Bytes;
use command::{Command, Spec};
use handshake::Hello;
use std::sync::Arc;
use subscriptions::{Names, Subscriptions};

/// Returns true if this is the name of a command.
pub(super) fn is_command(name: &[u8]) -> bool {
    Spec::find(name).is_some()
}

/// Event from the client.
///
/// Events with a method in brackets wait for it: until it or [`Server::refuse`] is called, nothing more is read, so
/// that replies have the order of the requests. Messages to a subscriber may be written at any time.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: a driver must handle each event
pub enum Event {
    /// The machine responded to a command by itself. There is one event for each, so that a driver can limit their rate
    /// and the size of the outbox.
    Responded {
        /// Name of the command in lower case, `unknown` if there is none with its name.
        command: &'static str,
    },
    /// The client sent credentials. \[[`Server::accept`]\]
    Auth(Credentials),
    /// The client calls a method. \[[`Server::called`]\]
    Call {
        /// Name of the method, `pkg.Service/Method`; any bytes.
        method: Bytes,
        /// The request as JSON.
        payload: Bytes,
        /// Names and values that follow the request.
        metadata: Metadata,
    },
    /// The client requests the channels that have subscribers. \[[`Server::channels`]\]
    Channels {
        /// Only the channels that match.
        pattern: Option<Pattern>,
    },
    /// The client requests the number of patterns that are subscribed to. \[[`Server::patterns`]\]
    Patterns,
    /// The client publishes a message. \[[`Server::published`]\]
    Publish {
        /// Name of the channel.
        channel: Bytes,
        /// Any bytes.
        payload: Bytes,
    },
    /// The client ends the connection: it is closed once the outbox is written.
    Quit,
    /// The client resets the connection: all of its subscriptions have ended, and it has to authenticate again.
    Reset,
    /// The client subscribes to a channel, shard channel or pattern that it has no subscription to.
    /// \[[`Server::accept`]\]
    Subscribe {
        /// Kind of the subscription.
        kind: SubscriptionKind,
        /// Name of the channel, or the pattern.
        name: Bytes,
    },
    /// The client requests the number of subscribers of each channel. \[[`Server::subscribers`]\]
    Subscribers {
        /// Names of channels, which may be repeated.
        channels: Vec<Bytes>,
    },
    /// The client ended a subscription.
    Unsubscribe {
        /// Kind of the subscription.
        kind: SubscriptionKind,
        /// Name of the channel, or the pattern.
        name: Bytes,
    },
}

/// Server side of one connection.
#[derive(Debug)]
pub struct Server {
    settings: Arc<Settings>,
    id: u64,
    version: Version,
    authenticated: bool,
    closed: bool,
    /// Name that the client gave the connection.
    client_name: Box<[u8]>,
    reader: RequestReader,
    /// Reply that an event waits for.
    pending: Pending,
    subscriptions: Subscriptions,
    /// Names of the last command that are not processed yet.
    names: Option<Box<Names>>,
}

/// Reply that an event waits for.
#[derive(Clone, Debug, Default)]
enum Pending {
    #[default]
    Nothing,
    Auth(Option<Hello>),
    Call,
    Channels,
    Patterns,
    Publish,
    Subscribe(SubscriptionKind, Bytes),
    Subscribers(Vec<Bytes>),
}

impl Server {
    /// Begins a connection. `id` is the number of the connection that `CLIENT ID` and `HELLO` report.
    pub fn new(settings: Arc<Settings>, id: u64) -> Server {
        Server {
            authenticated: !settings.requires_auth,
            settings,
            id,
            version: Version::Resp2,
            closed: false,
            client_name: Box::default(),
            reader: RequestReader::default(),
            pending: Pending::Nothing,
            subscriptions: Subscriptions::default(),
            names: None,
        }
    }

    /// Processes at most one command of `input`, or one name of a command with several; replies are appended to `out`.
    /// `None` means that more bytes are needed, that the last event waits for its reply, or that the connection is
    /// closed.
    ///
    /// # Errors
    /// Returns the error of the client and closes the connection; `out` has an error reply with its text.
    pub fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<Event>, ProtocolError> {
        if self.closed {
            input.skip(input.len());
            return Ok(None);
        }
        if self.is_waiting() {
            return Ok(None);
        }
        if let Some(names) = self.names.take() {
            return Ok(Some(self.next_name(*names, out)));
        }
        let settings = Arc::clone(&self.settings);
        let (limits, inline) = (&settings.limits, settings.inline);
        let rules = Rules { limits, inline, authenticated: self.authenticated };
        match self.reader.read(input, rules) {
            Ok(None) => Ok(None),
            Ok(Some(arguments)) => Ok(Some(self.execute(arguments, out))),
            Err(error) => {
                write_error("ERR", &format!("Protocol error: {}", error.message()), out);
                self.closed = true;
                Err(error)
            }
        }
    }

    /// Accepts the credentials or the subscription of the last event. Has no effect at other times.
    pub fn accept(&mut self, out: &mut Outbox) {
        match std::mem::take(&mut self.pending) {
            Pending::Auth(hello) => {
                self.authenticated = true;
                match hello {
                    Some(hello) => self.greet(hello, out),
                    None => write_line(b'+', b"OK", out),
                }
            }
            Pending::Subscribe(kind, name) => self.confirm(kind, &name, out),
            other => self.pending = other,
        }
    }

    /// Replies with an error to the last event that waits for a reply: the class, such as `NOPERM`, and the text. Names
    /// that follow the one of a refused subscription in the same command are dropped. Has no effect at other times.
    pub fn refuse(&mut self, class: &str, text: &str, out: &mut Outbox) {
        if self.is_waiting() {
            self.pending = Pending::Nothing;
            self.names = None;
            write_error(class, text, out);
        }
    }

    /// Rejects the credentials of the last event with the text of Redis. The client may try others; a driver limits how
    /// often. Has no effect at other times.
    pub fn reject(&mut self, out: &mut Outbox) {
        if matches!(self.pending, Pending::Auth(_)) {
            self.refuse("WRONGPASS", "invalid username-password pair or user is disabled.", out);
        }
    }

    /// Replies to [`Event::Call`]: the JSON of the reply, or a status whose code is the class of the error. Has no
    /// effect at other times.
    pub fn called<'a>(&mut self, result: Result<impl Into<Outgoing<'a>>, &Status>, out: &mut Outbox) {
        if matches!(self.pending, Pending::Call) {
            self.pending = Pending::Nothing;
            rpc::write_result(result, out);
        }
    }

    /// Replies to [`Event::Publish`] with the number of receivers. Has no effect at other times.
    pub fn published(&mut self, receivers: u64, out: &mut Outbox) {
        if matches!(self.pending, Pending::Publish) {
            self.pending = Pending::Nothing;
            write_head(b':', receivers, out);
        }
    }

    /// Replies to [`Event::Channels`] with their names. Has no effect at other times.
    pub fn channels<I>(&mut self, names: I, out: &mut Outbox)
    where
        I: IntoIterator,
        I::IntoIter: ExactSizeIterator,
        I::Item: AsRef<[u8]>,
    {
        if matches!(self.pending, Pending::Channels) {
            self.pending = Pending::Nothing;
            let names = names.into_iter();
            write_head(b'*', names.len() as u64, out);
            names.for_each(|name| write_text(name.as_ref(), out));
        }
    }

    /// Replies to [`Event::Patterns`] with their number. Has no effect at other times.
    pub fn patterns(&mut self, count: u64, out: &mut Outbox) {
        if matches!(self.pending, Pending::Patterns) {
            self.pending = Pending::Nothing;
            write_head(b':', count, out);
        }
    }

    /// Replies to [`Event::Subscribers`]: `count` returns the number of subscribers of a channel. Has no effect at
    /// other times.
    pub fn subscribers(&mut self, mut count: impl FnMut(&Bytes) -> u64, out: &mut Outbox) {
        match std::mem::take(&mut self.pending) {
            Pending::Subscribers(channels) => {
                write_head(b'*', channels.len() as u64 * 2, out);
                for channel in &channels {
                    write_text(channel, out);
                    write_head(b':', count(channel), out);
                }
            }
            other => self.pending = other,
        }
    }

    /// Returns true if the last event waits for its reply.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    /// Returns true if nothing more is read: after `QUIT`, or after an error.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the version in which messages to the client are written.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the name that the client gave the connection, empty if it gave none.
    pub fn client_name(&self) -> &[u8] {
        &self.client_name
    }

    /// Returns the number of subscriptions of all kinds.
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// Returns true if the last command has names that are not processed yet.
    pub fn has_more_names(&self) -> bool {
        self.names.is_some()
    }

    /// Returns true if the client needs no credentials, or has sent valid ones.
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Executes a command that has all of its arguments.
    fn execute(&mut self, mut arguments: Vec<Bytes>, out: &mut Outbox) -> Event {
        let name = arguments.remove(0);
        let Some(spec) = Spec::find(&name) else {
            write_error("ERR", &command::unknown(&name, &arguments), out);
            return Event::Responded { command: "unknown" };
        };
        let refusal = if !self.authenticated && !spec.command.is_before_auth() {
            Some(("NOAUTH", "Authentication required.".to_owned()))
        } else if !(spec.least..=spec.most).contains(&arguments.len()) {
            Some(("ERR", format!("wrong number of arguments for '{}' command", spec.name)))
        } else if self.is_restricted() && !spec.command.is_while_subscribed() {
            let allowed =
                "(P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
            Some(("ERR", format!("Can't execute '{}': only {allowed}", spec.name)))
        } else {
            None
        };
        if let Some((class, text)) = refusal {
            write_error(class, &text, out);
            return Event::Responded { command: spec.name };
        }
        self.run(spec.command, arguments, out).unwrap_or(Event::Responded { command: spec.name })
    }

    /// Returns the event of a command; `None` if its reply is in `out`.
    fn run(&mut self, command: Command, arguments: Vec<Bytes>, out: &mut Outbox) -> Option<Event> {
        match command {
            Command::Auth => return self.auth(arguments, out),
            Command::Call => return self.call(&arguments, out),
            Command::Client => self.client(&arguments, out),
            Command::Describe => information::command(self.version, &arguments, out),
            Command::Config => information::config(&self.settings.limits, self.version, &arguments, out),
            Command::Echo => write_text(&arguments[0], out),
            Command::Hello => return self.hello(&arguments, out),
            Command::Info => information::info(&self.settings, self.id, out),
            Command::Ping => self.ping(arguments.first(), out),
            Command::Publish => return self.publish(arguments, out),
            Command::Pubsub => return self.pubsub(arguments, out),
            Command::Quit => {
                write_line(b'+', b"OK", out);
                self.closed = true;
                return Some(Event::Quit);
            }
            Command::Reset => {
                self.reset();
                write_line(b'+', b"RESET", out);
                return Some(Event::Reset);
            }
            Command::Select if arguments[0] == b"0"[..] => write_line(b'+', b"OK", out),
            Command::Select => write_error("ERR", "DB index is out of range", out),
            Command::Subscribe(kind) => return self.subscribe(kind, arguments, out),
            Command::Unsubscribe(kind) => return Some(self.unsubscribe(kind, arguments, out)),
        }
        None
    }

    fn reset(&mut self) {
        self.version = Version::Resp2;
        self.authenticated = !self.settings.requires_auth;
        self.client_name = Box::default();
        self.subscriptions = Subscriptions::default();
    }
}
