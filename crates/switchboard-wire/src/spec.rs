//! Descriptor of a wire: everything that servers, channels, metrics and tools must know about it.
//!
//! A wire is one folder with one `pub static` [`WireSpec`], and one line in [`WIRES`](crate::wires::WIRES).
//! Applications declare further ones in the same way and [register](crate::WireId::register) them.

mod verdict;

pub use verdict::{PEEK_MAX, Verdict, starts};

use crate::{
    Codec, Encodings, Limits, MethodTable, Status,
    wire::{ClientWire, ServerWire},
};
use std::{fmt, sync::Arc};

/// Descriptor of a wire. Fields that a wire does not need come from [`named`](Self::named):
///
/// ```
/// use switchboard_wire::spec::WireSpec;
///
/// static SPEC: WireSpec = WireSpec { title: "a line protocol", ..WireSpec::named("lines") };
/// ```
#[derive(Debug)]
pub struct WireSpec {
    /// Name in options, metrics and messages: lower-case letters, digits, `-` and `_`.
    pub name: &'static str,
    /// Further names in `wire=` options and `wires=` lists. A client wire may behave differently under an alias.
    pub aliases: &'static [&'static str],
    /// Name for people: protocol and framework.
    pub title: &'static str,
    /// Matcher of the first bytes of a connection; `None` for wires without connections of their own. It must decide
    /// within [`PEEK_MAX`] bytes.
    pub sniff: Option<fn(&[u8]) -> Verdict>,
    /// Servers of the wire send the first bytes of a connection, so that no listener can detect it: a listener serves
    /// such a wire if it has no other wire, with `wires=NAME` or an address `NAME://HOST:PORT`.
    pub speaks_first: bool,
    /// Path of WebSockets whose binary messages are the bytes of a connection, split at any position; for wires that a
    /// plugin serves.
    pub websocket_path: Option<&'static str>,
    /// Sub-protocols of WebSockets at this path: the first one that the client offers is accepted.
    pub websocket_protocols: &'static [&'static str],
    /// Protocol name in ALPN, if the wire has one.
    pub alpn: Option<&'static [u8]>,
    /// Creates the state machine of a server connection; `None` for wires without connections of their own, and for
    /// those whose connections a plugin serves.
    pub server: Option<fn(ServerSetup) -> Box<dyn ServerWire + Unpin>>,
    /// Writes the response to a connection that a server rejects before it has read a call. Without it, the server
    /// closes such a connection.
    pub rejection: Option<fn(&Limits, &Status) -> Vec<u8>>,
    /// How channels call servers of the wire.
    pub client: ClientSupport,
    /// Features of calls that the wire can express.
    pub capabilities: Capabilities,
}

impl WireSpec {
    /// Creates a descriptor that has only a name: neither servers nor channels, and no capabilities.
    pub const fn named(name: &'static str) -> WireSpec {
        WireSpec {
            name,
            aliases: &[],
            title: name,
            sniff: None,
            speaks_first: false,
            websocket_path: None,
            websocket_protocols: &[],
            alpn: None,
            server: None,
            rejection: None,
            client: ClientSupport::None,
            capabilities: Capabilities::NONE,
        }
    }

    /// Returns true if listeners accept calls on the wire, so that it can be enabled and disabled.
    pub const fn is_served(&self) -> bool {
        self.sniff.is_some() || self.speaks_first || self.capabilities.http
    }

    /// Returns true if channels can use the wire, as `wire=NAME`.
    pub const fn is_callable(&self) -> bool {
        !matches!(self.client, ClientSupport::None)
    }

    /// Returns true if `name` is the name or an alias.
    pub fn has_name(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Arguments of the constructor of a server machine.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// Limits of the connection.
    pub limits: Limits,
    /// Methods of the server.
    pub table: Arc<MethodTable>,
    /// Encodings of compressed messages that the server accepts.
    pub encodings: Encodings,
}

/// How channels call servers of a wire.
#[derive(Clone, Copy, Debug)]
// closed: every channel handles each form
pub enum ClientSupport {
    /// Channels cannot use the wire.
    None,
    /// Channels have their own code for it: the native wire, and those that are calls of HTTP.
    BuiltIn,
    /// Channels run a state machine; the function returns its default options.
    Machine(fn() -> Box<dyn ClientSetup>),
}

/// Options of a client wire, from the URL of a channel.
pub trait ClientSetup: fmt::Debug + Send + Sync {
    /// Applies an option of the URL; returns false for an unknown one.
    ///
    /// # Errors
    /// The values that were expected instead of `value`.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str>;

    /// Checks that the options are compatible with each other.
    ///
    /// # Errors
    /// The conflict, and the fix.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Records that the address is one of HTTP; returns false when the wire does not run over HTTP.
    fn set_http(&mut self) -> bool {
        false
    }

    /// The path of WebSockets with this wire when the address has none. The messages are the bytes of a connection,
    /// split at any position, in a WebSocket without a sub-protocol.
    ///
    /// # Errors
    /// The reason why the wire does not run in WebSockets.
    fn websocket_path(&self) -> Result<&'static str, &'static str> {
        Err("does not run in WebSockets: use tcp://, tls://, unix: or memory://")
    }

    /// The machine for calls in the bodies of HTTP requests, if the options select them.
    fn posted(&self) -> Option<PostedMachine> {
        None
    }

    /// The codec that calls use where generated code prefers `preferred`.
    fn codec(&self, preferred: Codec) -> Codec;

    /// Returns true when servers see the metadata of a call, including its idempotency key.
    fn carries_metadata(&self) -> bool {
        true
    }

    /// Creates the state machine of a new connection.
    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire>;

    /// Creates the state machine of a new connection to this server, for wires that name the server in their requests.
    fn machine_for(&self, limits: &Limits, _server: ServerName<'_>) -> Box<dyn ClientWire> {
        self.machine(limits)
    }
}

/// Names of the server of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServerName<'a> {
    /// Address, for messages.
    pub address: &'a str,
    /// Host and port, as in a URL; `localhost` for transports without a host.
    pub authority: &'a str,
    /// The connection is encrypted.
    pub is_secure: bool,
}

impl<'a> ServerName<'a> {
    /// Creates the names of a server without a secure connection.
    pub fn new(address: &'a str, authority: &'a str) -> ServerName<'a> {
        ServerName { address, authority, is_secure: false }
    }

    /// Sets that the connection is encrypted.
    #[must_use]
    pub fn secure(mut self, is_secure: bool) -> ServerName<'a> {
        self.is_secure = is_secure;
        self
    }
}

/// Features of calls that a wire can express, some of them only with certain options.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Metadata of requests.
    pub metadata: bool,
    /// Kinds of streaming calls.
    pub streams: Streams,
    /// Messages that a server sends outside of calls.
    pub push: bool,
    /// The time that is left for a call.
    pub deadlines: bool,
    /// Bytes beside the message of a request and a reply.
    pub attachments: bool,
    /// Calls inside HTTP requests or WebSockets.
    pub http: bool,
    /// Codecs of messages.
    pub codecs: &'static [Codec],
    /// Largest message that the format can carry, in bytes; `None` if only the limits of both sides apply.
    pub message_bytes_max: Option<u32>,
}

impl Capabilities {
    /// Unary calls without anything else.
    pub const NONE: Capabilities = Capabilities {
        metadata: false,
        streams: Streams::None,
        push: false,
        deadlines: false,
        attachments: false,
        http: false,
        codecs: &[],
        message_bytes_max: None,
    };
}

/// Kinds of streaming calls that a wire can express.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: no stream, streams of replies, or both directions
pub enum Streams {
    /// Unary calls only.
    None,
    /// Streams of replies.
    Replies,
    /// Streams in both directions.
    All,
}

/// Creates machines for calls in the bodies of HTTP requests, one machine per request.
#[derive(Clone, Copy, Debug)]
pub struct PostedMachine {
    /// Creates a machine for a variant of the wire.
    pub create: fn(Limits, u8) -> Box<dyn ClientWire>,
    /// The variant, by a number of the wire's own.
    pub variant: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wires::WIRES;

    #[test]
    fn machines_use_the_codecs_of_their_wire() {
        for spec in WIRES {
            let ClientSupport::Machine(setup) = spec.client else { continue };
            let setup = setup();
            for &preferred in Codec::ALL {
                let codec = setup.codec(preferred);
                assert!(spec.capabilities.codecs.contains(&codec), "{} uses {codec}", spec.name);
            }
            let machine = setup.machine(&Limits::default());
            assert!(machine.name().contains(spec.name), "{} and {}", machine.name(), spec.name);
            assert_eq!(machine.carries_attachments(), spec.capabilities.attachments, "{}", spec.name);
            assert!(!setup.carries_metadata() || spec.capabilities.metadata, "{}", spec.name);
            let bytes_max = spec.capabilities.message_bytes_max;
            assert!(bytes_max.is_none_or(|bytes| bytes == machine.message_bytes_max()), "{}", spec.name);
        }
    }

    #[test]
    fn servers_have_the_pushes_of_their_wire() {
        for spec in WIRES {
            let Some(server) = spec.server else { continue };
            let (limits, table) = (Limits::default(), Arc::default());
            let machine = server(ServerSetup { limits, table, encodings: Encodings::ALL });
            assert_eq!(machine.pushes().is_some(), spec.capabilities.push, "{}", spec.name);
        }
    }
}
