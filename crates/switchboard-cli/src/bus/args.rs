//! The command line of `switchboard bus`.

use super::start::StartAt;
use crate::call::{duration, parse_metadata};
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

Exit codes: those of `call`: 0, 64 plus the number of the status, 2 for usage
errors, 1 when the output cannot be written. Ctrl-C ends `sub`, `pull` and
`rep` with 0.";

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
    /// Publish jobs: as `pub`.
    Push(SendArgs),
    /// Print jobs, of which each goes to one member of the group: as `sub --group`.
    Pull(ReceiveArgs),
    /// List the topics of a server.
    Topics(TopicsArgs),
}

#[derive(Debug, Args)]
pub(super) struct Common {
    /// Server: HOST:PORT, unix:/PATH, or the URL of a channel such as tls://HOST:PORT?ca=FILE or HOST:PORT?wire=grpc
    pub(super) address: String,
    /// Print JSON: an object on each line, failures too
    #[arg(long)]
    pub(super) json: bool,
    /// Fail with DEADLINE_EXCEEDED after this time, as in 5s or 300ms; of `req`, for each reply [default: none, 5s for
    /// `req`]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// Name of the topic
    pub(super) topic: String,
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
}

#[derive(Debug, Args)]
pub(super) struct ReceiveArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Topic, or pattern: * is one level, > is one or more at the end
    pub(super) topic: String,
    /// First entry: head (the next one), last:N, a POSITION that `pub` printed (what follows it), or an age as in -5m
    /// [default: head]
    #[arg(long, value_name = "START", allow_hyphen_values = true, value_parser = StartAt::parse)]
    pub(super) from: Option<StartAt>,
    /// Share the entries with the other members of this group [default: none, workers for `pull`]
    #[arg(long, value_name = "NAME")]
    pub(super) group: Option<String>,
    /// Acknowledge each entry after it is printed; the group receives unacknowledged ones again
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
    /// Topic of the requests
    pub(super) topic: String,
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
    /// Name or pattern
    #[arg(default_value = ">")]
    pub(super) pattern: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum MessageCodec {
    Json,
    Raw,
}

impl MessageCodec {
    pub(super) fn codec(self) -> Codec {
        match self {
            MessageCodec::Json => Codec::Json,
            MessageCodec::Raw => Codec::Raw,
        }
    }
}
