//! The command line of the commands that call a gateway.

use super::settings::GatewayArgs;
use crate::{
    bus::parts::{MessageCodec, PrintArgs},
    call::{duration, parse_metadata},
};
use bytes::Bytes;
use clap::{Args, Subcommand, value_parser};
use std::time::Duration;
use switchboard_message::Position;

const EXAMPLES: &str = "\
Examples:
  switchboard push serve --open
  switchboard push watch localhost:8080 live/7 --last 10
  switchboard push send localhost:8080 live/7 'half time'
  switchboard push send localhost:8080 --user 42 '{\"n\":1}' --codec json
  switchboard push send localhost:8080 --all 'back in a minute' --token TOKEN
  switchboard push top localhost:8080 'live/*'

Exit codes: those of `call`: 0, 64 plus the number of the status, 2 for usage
errors, 1 when the output cannot be written. Ctrl-C ends `top` and `watch`
with 0.";

/// `switchboard push`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PushArgs {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve devices: event streams, WebSockets, RPC, goim and MQTT on one port, with an API to push to them.
    Serve(Box<GatewayArgs>),
    /// Push a message to a room, users, keys, the rooms of a pattern, or all devices, and print its positions.
    Send(SendArgs),
    /// Show the rooms of a gateway with members and rates.
    Top(TopArgs),
    /// Join rooms as a device, and print their entries; missing ones are reported on standard error.
    Watch(WatchArgs),
}

impl Command {
    pub(super) fn is_json(&self) -> bool {
        match self {
            Command::Serve(_) => false,
            Command::Send(args) => args.server.json,
            Command::Top(args) => args.server.json,
            Command::Watch(args) => args.server.json,
        }
    }
}

/// The server, and the form of the output.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Server: HOST:PORT, unix:/PATH, or the URL of a channel such as tls://HOST:PORT?ca=FILE or HOST:PORT?wire=grpc
    pub(super) address: String,
    /// Token to send as `authorization: Bearer`: that of the API for `send` and `top`, that of a device for `watch`
    /// [default: the variable SWITCHBOARD_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(super) token: Option<String>,
    /// Print JSON: an object on each line, failures too
    #[arg(long)]
    pub(super) json: bool,
    /// Fail with DEADLINE_EXCEEDED after this time, as in 5s or 300ms; of `send` for each message, of `top` for each
    /// table [default: 5s, none for `watch`]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// Name of the room, unless a flag names other targets; then the message
    #[arg(value_name = "ROOM", allow_hyphen_values = true)]
    pub(super) first: Option<String>,
    /// Message; - or none reads standard input
    #[arg(value_name = "DATA", allow_hyphen_values = true)]
    pub(super) second: Option<String>,
    /// Push to all devices of this user. May be given several times
    #[arg(long, value_name = "USER")]
    pub(super) user: Vec<String>,
    /// Push to the device with this key. May be given several times
    #[arg(long, value_name = "KEY")]
    pub(super) key: Vec<String>,
    /// Push to the rooms of this pattern that have a member, as in 'live/*'. May be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(super) rooms: Vec<String>,
    /// Push to all devices
    #[arg(long)]
    pub(super) all: bool,
    /// Send each line of standard input as a message
    #[arg(long)]
    pub(super) lines: bool,
    /// Operation: devices whose filter does not accept it do not receive the message
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) operation: Option<i32>,
    /// Codec that receivers decode the message with
    #[arg(long, value_enum, default_value = "raw")]
    pub(super) codec: MessageCodec,
    /// Header to send; values of names that end in -bin are base64. May be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_metadata)]
    pub(super) headers: Vec<(String, Bytes)>,
    /// Publication id: a second message with it within 2 minutes is not delivered
    #[arg(long, value_name = "ID", conflicts_with = "lines")]
    pub(super) id: Option<String>,
    /// Do not deliver the message after this time, as in 30s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) expires_in: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// Name of a room, or pattern as in 'live/*' [default: all rooms]
    pub(super) pattern: Option<String>,
    /// Time between two tables, over which rates are measured
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(super) interval: Duration,
    /// Rooms of a table, those with the highest rates and the most members
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..), default_value = "20")]
    pub(super) limit: u16,
    /// End after one table
    #[arg(long)]
    pub(super) once: bool,
}

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    #[command(flatten)]
    pub(super) print: PrintArgs,
    /// Rooms to join [default: none: entries of the device, its user and all]
    pub(super) rooms: Vec<String>,
    /// Begin with this number of kept entries of each room
    #[arg(long, value_name = "N", conflicts_with = "after")]
    pub(super) last: Option<u32>,
    /// Begin after this position of the room, as `send` prints it
    #[arg(long, value_name = "POSITION", value_parser = position)]
    pub(super) after: Option<Position>,
    /// User of the device, for a gateway that is open
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
    /// Key of the device, which disconnects another device with it
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// Receive only entries with this operation, and those without one. May be given several times
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) accepts: Vec<i32>,
    /// End after N entries
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
}

/// Parses a position in the form in which it is printed.
fn position(text: &str) -> Result<Position, String> {
    let read = || {
        let (epoch, offset) = text.split_once(':')?;
        Some(Position { epoch: u64::from_str_radix(epoch, 16).ok()?, offset: offset.parse().ok()? })
    };
    read().ok_or_else(|| "expected a position such as 5e1f:42".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_parsed_as_they_are_printed() {
        let expected = Position { epoch: 0x5e1f, offset: 42 };
        assert_eq!(position(&expected.to_string()), Ok(expected));
        for wrong in ["", "5e1f", "x:1", "1:-1", ":"] {
            assert!(position(wrong).is_err(), "{wrong}");
        }
    }
}
