//! The command line of `switchboard bus`.

use super::{receive::topic, start::StartAt};
use crate::call::{Failure, duration, parse_metadata};
use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;
use switchboard::Codec;

const EXAMPLES: &str = "\
Examples:
  switchboard serve --topics
  switchboard bus sub localhost:8080 'quotes/*' --from last:10
  switchboard bus pub localhost:8080 quotes/acme 12.5
  switchboard bus pull localhost:8080 jobs --group workers --ack
  switchboard bus push localhost:8080 jobs --lines < jobs.txt
  switchboard bus rep localhost:8080 echo --echo
  switchboard bus req localhost:8080 echo hello
  switchboard bus topics localhost:8080 'quotes/*' --json

Other servers and peers, with the names and rules of their protocols:
  switchboard bus sub nats://localhost:4222 'quotes.*' --group workers
  switchboard bus pub redis://localhost:6379 quotes 12.5
  switchboard bus pull redis://localhost:6379 jobs --from last:10 --ack
  switchboard bus sub zmq+tcp://localhost:5556 quotes/
  switchboard bus push zmq+ipc:///run/jobs.sock 'one job' --bind
  switchboard bus proxy zmq+tcp://*:5555 zmq+tcp://*:5556 --kind forwarder

Exit codes: those of `call`: 0, 64 plus the number of the status, 2 for usage
errors, 1 when the output cannot be written. Ctrl-C ends `sub`, `pull`, `rep`
and `proxy` with 0.";

/// `switchboard bus`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BusArgs {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Publish messages to a topic, and print their positions.
    Pub(SendArgs),
    /// Print the entries of a topic or pattern; missing ones are reported on standard error.
    Sub(ReceiveArgs),
    /// Send a request to a topic, and print its reply.
    Req(RequestArgs),
    /// Reply to the requests of a topic.
    Rep(ReplyArgs),
    /// Publish jobs: as `pub`; to Redis, append them to a stream.
    Push(SendArgs),
    /// Print jobs, of which each goes to one member of the group: as `sub --group`; of Redis, those of a stream.
    Pull(ReceiveArgs),
    /// Forward messages between two ZeroMQ endpoints until Ctrl-C.
    Proxy(ProxyArgs),
    /// List the topics of a server.
    Topics(TopicsArgs),
}

#[derive(Debug, Args)]
pub(super) struct Common {
    /// Server: HOST:PORT, unix:/PATH, or the URL of a channel such as tls://HOST:PORT?ca=FILE or HOST:PORT?wire=grpc;
    /// nats://, redis://, zmq+tcp:// or zmq+ipc:// of others, with [USER:PASSWORD@] for NATS and Redis
    pub(super) address: String,
    /// Bind the address of ZeroMQ and wait for peers, rather than connect to it
    #[arg(long)]
    pub(super) bind: bool,
    /// Print JSON: an object on each line, failures too
    #[arg(long)]
    pub(super) json: bool,
    /// Fail with DEADLINE_EXCEEDED after this time, as in 5s or 300ms; of `req`, for each reply; of `pub` and `push` to
    /// ZeroMQ, for each wait for a peer [default: none, 5s for these]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
}

/// Output of messages.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PrintArgs {
    /// Print control characters of messages as they are, to terminals too; without it, a terminal gets them escaped
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// Name of the topic; PUSH and REQ of ZeroMQ have none, and send one before the message as a frame
    pub(super) topic: Option<String>,
    /// Message; - or none reads standard input
    #[arg(allow_hyphen_values = true)]
    pub(super) message: Option<String>,
    /// Send each line of standard input as a message
    #[arg(long, conflicts_with = "message")]
    pub(super) lines: bool,
    /// Header to send; values of names that end in -bin are base64. May be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_metadata)]
    pub(super) headers: Vec<(String, Bytes)>,
    /// Codec that receivers decode the message with
    #[arg(long, value_enum, default_value = "raw")]
    pub(super) codec: MessageCodec,
}

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) message: MessageArgs,
    /// Key, of which a topic may keep the newest entry only
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    pub(super) key: Option<String>,
    /// Publication id: a second message with it within 2 minutes is not appended
    #[arg(long, value_name = "ID", conflicts_with = "lines")]
    pub(super) id: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) message: MessageArgs,
    #[command(flatten)]
    pub(super) print: PrintArgs,
}

#[derive(Debug, Args)]
pub(super) struct ReceiveArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) print: PrintArgs,
    /// Topic, or pattern: * is one level, > is one or more at the end; of ZeroMQ, a prefix or none
    pub(super) topic: Option<String>,
    /// First entry: head (the next one), last:N, a POSITION that `pub` printed or the id of an entry of a Redis stream
    /// (what follows it), or an age as in -5m
    /// [default: head]
    #[arg(long, value_name = "START", allow_hyphen_values = true, value_parser = StartAt::parse)]
    pub(super) from: Option<StartAt>,
    /// Share the entries with the other members of this group [default: none, workers for `pull`]
    #[arg(long, value_name = "NAME")]
    pub(super) group: Option<String>,
    /// Acknowledge each entry after it is printed; the group receives unacknowledged ones again, in Redis after a
    /// minute
    #[arg(long)]
    pub(super) ack: bool,
    /// Keep the cursor of the group at the server while it has no members; includes --ack
    #[arg(long)]
    pub(super) durable: bool,
    /// End after N entries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct ReplyArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) print: PrintArgs,
    /// Topic of the requests; ZeroMQ has none
    pub(super) topic: Option<String>,
    /// Reply with the request
    #[arg(long, required_unless_present = "text", conflicts_with = "text")]
    pub(super) echo: bool,
    /// Reply with this text
    #[arg(long, allow_hyphen_values = true)]
    pub(super) text: Option<String>,
    /// End after N requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct TopicsArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Name or pattern [default: all topics]
    pub(super) pattern: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ProxyArgs {
    /// Endpoint for clients, publishers or senders, as in zmq+tcp://*:5555
    pub(super) front: String,
    /// Endpoint for workers, subscribers or receivers, as in zmq+tcp://*:5556
    pub(super) back: String,
    /// Socket types of the two sides
    #[arg(long, value_enum)]
    pub(super) kind: ProxyKind,
    /// Connect to FRONT rather than bind it
    #[arg(long)]
    pub(super) connect_front: bool,
    /// Connect to BACK rather than bind it
    #[arg(long)]
    pub(super) connect_back: bool,
    /// Print failures as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ProxyKind {
    /// XSUB and XPUB: messages to subscribers
    Forwarder,
    /// ROUTER and DEALER: requests to workers, and their replies
    Queue,
    /// PULL and PUSH: jobs to workers
    Streamer,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MessageCodec {
    Json,
    Raw,
}

impl MessageArgs {
    /// Returns the name of the topic.
    pub(super) fn topic(&self) -> Result<&str, Failure> {
        topic(self.topic.as_deref())
    }
}

impl MessageCodec {
    pub(crate) fn codec(self) -> Codec {
        match self {
            MessageCodec::Json => Codec::Json,
            MessageCodec::Raw => Codec::Raw,
        }
    }
}
