//! The command line that every rival understands, and two options of its own that its manifest sets.

use crate::runtime::{Runtime, cores};
use lexopt::{Arg, Parser, ValueExt};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

/// The command line.
#[derive(Debug)]
pub struct Arguments {
    pub(crate) command: Command,
    /// `--runtime`: how threads share the work.
    pub runtime: Runtime,
    /// `--threads`: one a core unless said.
    pub threads: usize,
}

#[derive(Debug)]
pub(crate) enum Command {
    /// Listens on this address.
    Server(IpAddr),
    Client(Load),
    Codecs,
}

/// The load that a client makes.
#[derive(Clone, Debug)]
pub struct Load {
    /// The method to call.
    pub call: Call,
    /// Servers; connections are spread over them.
    pub addresses: Vec<SocketAddr>,
    /// Callers in a closed loop, or messages outstanding on a stream.
    pub callers: usize,
    /// Bytes of the echo's payload.
    pub bytes: usize,
    /// Connections in total; `None` is the rival's choice.
    pub connections: Option<usize>,
    /// How long calls are not counted.
    pub warm_up: Duration,
    /// When it ends.
    pub until: Until,
    /// How calls use connections.
    pub mode: Mode,
}

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The reply's payload is the request's.
    Echo,
    /// The message of 581 bytes, decoded, changed and encoded by the server.
    Message,
}

/// How calls use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Calls on connections that stay.
    Unary,
    /// A new connection for each call.
    PerCall,
    /// One bidirectional stream; each message of it counts as a request.
    Stream,
}

/// When a client ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So long after the warm-up.
    After(Duration),
    /// So many requests after the warm-up.
    Requests(u64),
}

impl Arguments {
    /// Reads the command line of this process.
    pub(crate) fn parse() -> Result<Self, String> {
        Self::read(Parser::from_env()).map_err(|error| error.to_string())
    }

    fn read(mut parser: Parser) -> Result<Self, lexopt::Error> {
        let mut runtime = Runtime::PerCore;
        let mut threads = cores();
        let mut host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (mut role, mut codecs) = (None, false);
        let mut load = Load {
            call: Call::Echo,
            addresses: Vec::new(),
            callers: 1,
            bytes: 100,
            connections: None,
            warm_up: Duration::from_millis(500),
            until: Until::After(Duration::from_secs(3)),
            mode: Mode::Unary,
        };
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Value(value) if role.is_none() => role = Some(value.string()?),
                Arg::Long("address") => load.addresses = parser.value()?.parse_with(addresses)?,
                Arg::Long("bytes") => load.bytes = parser.value()?.parse()?,
                Arg::Long("call") => match parser.value()?.string()?.as_str() {
                    "echo" => load.call = Call::Echo,
                    "message" => load.call = Call::Message,
                    "codecs" => codecs = true,
                    other => {
                        return Err(format!("no call {other}: echo, message and codecs are known").into());
                    }
                },
                Arg::Long("callers") => load.callers = parser.value()?.parse()?,
                Arg::Long("connections") => {
                    load.connections = Some(parser.value()?.parse()?).filter(|connections| *connections > 0);
                }
                Arg::Long("host") => host = parser.value()?.parse()?,
                Arg::Long("mode") => {
                    load.mode = match parser.value()?.string()?.as_str() {
                        "unary" => Mode::Unary,
                        "per-call" => Mode::PerCall,
                        "stream" => Mode::Stream,
                        other => {
                            return Err(
                                format!("no mode {other}: unary, per-call and stream are known").into()
                            );
                        }
                    };
                }
                Arg::Long("requests") => load.until = Until::Requests(parser.value()?.parse()?),
                Arg::Long("runtime") => runtime = parser.value()?.parse()?,
                Arg::Long("seconds") => load.until = Until::After(parser.value()?.parse_with(seconds)?),
                Arg::Long("threads") => threads = parser.value()?.parse()?,
                Arg::Long("warm-up") => load.warm_up = parser.value()?.parse_with(seconds)?,
                _ => return Err(argument.unexpected()),
            }
        }
        let command = match role.as_deref() {
            Some("server") => Command::Server(host),
            Some("client") if codecs => Command::Codecs,
            Some("client") if load.addresses.is_empty() => {
                return Err("--address HOST:PORT is missing".into());
            }
            Some("client") if load.callers == 0 => return Err("--callers 0 calls nothing".into()),
            Some("client") => Command::Client(load),
            _ => return Err("server or client must be the first argument".into()),
        };
        Ok(Self { command, runtime, threads: threads.max(1) })
    }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, std::net::AddrParseError> {
    text.split(',').map(str::parse).collect()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|error| format!("{text} is no number of seconds: {error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(line: &str) -> Load {
        let arguments = Arguments::read(Parser::from_args(line.split_whitespace())).unwrap();
        let Command::Client(load) = arguments.command else { panic!("{line} is a client's") };
        load
    }

    #[test]
    fn zero_connections_is_the_choice_of_the_rival() {
        assert_eq!(client("client --address 127.0.0.1:1 --connections 0").connections, None);
        assert_eq!(client("client --address 127.0.0.1:1 --connections 3").connections, Some(3));
    }

    #[test]
    fn two_addresses() {
        assert_eq!(client("client --address 127.0.0.1:1,127.0.0.1:2").addresses.len(), 2);
    }

    #[test]
    fn unknown_option_is_refused() {
        assert!(Arguments::read(Parser::from_args(["client", "--adress", "127.0.0.1:1"])).is_err());
    }
}
