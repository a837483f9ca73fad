//! The commands of the server side.

use crate::resp::SubscriptionKind;
use bytes::Bytes;

/// Bytes of an unknown command, and of its arguments together, that the error repeats.
const SHOWN_BYTES_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Auth,
    Call,
    Client,
    Config,
    Describe,
    Echo,
    Hello,
    Info,
    Ping,
    Publish,
    Pubsub,
    Quit,
    Reset,
    Select,
    Subscribe(SubscriptionKind),
    Unsubscribe(SubscriptionKind),
}

/// Command with its name and the numbers of arguments that it may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) command: Command,
    pub(super) least: usize,
    pub(super) most: usize,
}

const ANY: usize = usize::MAX;

const COMMANDS: [(&str, Command, usize, usize); 21] = [
    ("auth", Command::Auth, 1, 2),
    ("call", Command::Call, 2, ANY),
    ("client", Command::Client, 1, ANY),
    ("command", Command::Describe, 0, ANY),
    ("config", Command::Config, 1, ANY),
    ("echo", Command::Echo, 1, 1),
    ("hello", Command::Hello, 0, ANY),
    ("info", Command::Info, 0, ANY),
    ("ping", Command::Ping, 0, 1),
    ("psubscribe", Command::Subscribe(SubscriptionKind::Pattern), 1, ANY),
    ("publish", Command::Publish, 2, 2),
    ("pubsub", Command::Pubsub, 1, ANY),
    ("punsubscribe", Command::Unsubscribe(SubscriptionKind::Pattern), 0, ANY),
    ("quit", Command::Quit, 0, ANY),
    ("reset", Command::Reset, 0, 0),
    ("select", Command::Select, 1, 1),
    ("spublish", Command::Publish, 2, 2),
    ("ssubscribe", Command::Subscribe(SubscriptionKind::Shard), 1, ANY),
    ("subscribe", Command::Subscribe(SubscriptionKind::Channel), 1, ANY),
    ("sunsubscribe", Command::Unsubscribe(SubscriptionKind::Shard), 0, ANY),
    ("unsubscribe", Command::Unsubscribe(SubscriptionKind::Channel), 0, ANY),
];

impl Spec {
    /// Returns the command with this name; the case does not matter.
    pub(super) fn find(name: &[u8]) -> Option<Spec> {
        let found = COMMANDS.iter().find(|(known, ..)| known.as_bytes().eq_ignore_ascii_case(name));
        found.map(|&(name, command, least, most)| Spec { name, command, least, most })
    }
}

impl Command {
    /// Returns true if a client may use it before it is authenticated.
    pub(super) fn is_before_auth(self) -> bool {
        matches!(self, Command::Auth | Command::Hello | Command::Quit | Command::Reset)
    }

    /// Returns true if a subscriber with RESP2 may use it.
    pub(super) fn is_while_subscribed(self) -> bool {
        use Command::{Ping, Quit, Reset, Subscribe, Unsubscribe};
        matches!(self, Ping | Quit | Reset | Subscribe(_) | Unsubscribe(_))
    }
}

/// Returns the text of the error for an unknown command.
pub(super) fn unknown(name: &[u8], arguments: &[Bytes]) -> String {
    let shown = &name[..name.len().min(SHOWN_BYTES_MAX)];
    let mut text =
        format!("unknown command '{}', with args beginning with: ", String::from_utf8_lossy(shown));
    let mut left = SHOWN_BYTES_MAX;
    for argument in arguments {
        if left == 0 {
            break;
        }
        let shown = &argument[..argument.len().min(left)];
        text.push_str(&format!("'{}' ", String::from_utf8_lossy(shown)));
        left = left.saturating_sub(shown.len() + 3);
    }
    text
}

/// Returns the text of the error for an unknown subcommand.
pub(super) fn unknown_subcommand(name: &str, subcommand: &[u8]) -> String {
    let shown = &subcommand[..subcommand.len().min(SHOWN_BYTES_MAX)];
    format!("unknown subcommand '{}' of '{name}'", String::from_utf8_lossy(shown))
}
