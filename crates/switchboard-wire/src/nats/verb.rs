//! Verbs of the two sides.

/// Side of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Client,
    Server,
}

/// First word of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Connect,
    Err,
    Hmsg,
    Hpub,
    Info,
    Msg,
    Ok,
    Ping,
    Pong,
    Pub,
    Sub,
    Unsub,
}

impl Verb {
    const SENT_BY_CLIENTS: [Verb; 7] =
        [Verb::Pub, Verb::Hpub, Verb::Sub, Verb::Unsub, Verb::Ping, Verb::Pong, Verb::Connect];
    const SENT_BY_SERVERS: [Verb; 7] =
        [Verb::Msg, Verb::Hmsg, Verb::Ping, Verb::Pong, Verb::Ok, Verb::Info, Verb::Err];

    /// Returns the verbs that this side sends.
    pub(super) fn sent_by(role: Role) -> [Verb; 7] {
        match role {
            Role::Client => Verb::SENT_BY_CLIENTS,
            Role::Server => Verb::SENT_BY_SERVERS,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Connect => "CONNECT",
            Verb::Err => "-ERR",
            Verb::Hmsg => "HMSG",
            Verb::Hpub => "HPUB",
            Verb::Info => "INFO",
            Verb::Msg => "MSG",
            Verb::Ok => "+OK",
            Verb::Ping => "PING",
            Verb::Pong => "PONG",
            Verb::Pub => "PUB",
            Verb::Sub => "SUB",
            Verb::Unsub => "UNSUB",
        }
    }
}
