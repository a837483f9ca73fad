//! The presets, as cells: each cell is one shape of load that every subject gets.

use super::subject::{Kind, Subject};
use crate::peer::{Call, Mode};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use switchboard_cli::bench::options::MESSAGE_BYTES;

/// A named comparison.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Preset {
    /// Every preset below.
    All,
    /// Echo 100 B with 1, 5, 10 and 100 callers.
    Callers,
    /// Echo 10 B to 10 MB with one caller.
    Sizes,
    /// The 581-byte message with 100 to 5000 callers.
    Message,
    /// The message against one server and against two.
    Servers,
    /// One connection: one by one, pipelined, and as a stream.
    Connection,
    /// A long connection against one for each call, from one client process and from four.
    Connections,
    /// Cost of encoding and decoding the message.
    Codecs,
    /// The message on the wires of other frameworks, and with those frameworks, with 100 and 1000 callers.
    Wires,
    /// Sockets and topics beside other libraries of ZeroMQ's protocol; runs alone, and not with `all`.
    Messaging,
}

/// One measurement that is made of every subject.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Cell {
    /// Such as `callers/100`.
    pub(super) id: String,
    /// For people.
    pub(super) label: String,
    pub(super) preset: Preset,
    pub(super) call: Call,
    pub(super) mode: Mode,
    /// In each client process.
    pub(super) callers: u32,
    /// Payload, each way.
    pub(super) bytes: u64,
    /// In each client process; 0 selects the best number for the subject.
    pub(super) connections: u32,
    /// Client processes.
    pub(super) clients: u32,
    pub(super) servers: u32,
}

impl Preset {
    pub(super) const EACH: [Self; 8] = [
        Self::Callers,
        Self::Sizes,
        Self::Message,
        Self::Servers,
        Self::Connection,
        Self::Connections,
        Self::Codecs,
        Self::Wires,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Callers => "callers",
            Self::Sizes => "sizes",
            Self::Message => "message",
            Self::Servers => "servers",
            Self::Connection => "connection",
            Self::Connections => "connections",
            Self::Codecs => "codecs",
            Self::Wires => "wires",
            Self::Messaging => "messaging",
        }
    }

    /// Its cells in the order of the report.
    fn own_cells(self) -> Vec<Cell> {
        let message_of = |preset, callers| Cell {
            callers,
            bytes: MESSAGE_BYTES as u64,
            call: Call::Message,
            ..Cell::echo(preset, callers, many("caller", callers))
        };
        let message = |callers| message_of(Self::Message, callers);
        match self {
            Self::All => Self::EACH.into_iter().flat_map(Self::own_cells).collect(),
            Self::Callers => [1, 5, 10, 100]
                .map(|callers| Cell { callers, ..Cell::echo(self, callers, many("caller", callers)) })
                .to_vec(),
            Self::Sizes => [10, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
                .map(|bytes| Cell {
                    bytes,
                    ..Cell::echo(self, bytes, switchboard_cli::bench::options::size(bytes as usize))
                })
                .to_vec(),
            Self::Message => [100, 500, 1000, 2000, 5000].map(message).to_vec(),
            // The preset `message` measures one server: `all` runs that only once.
            Self::Servers => SERVERS_CALLERS
                .into_iter()
                .flat_map(|callers| {
                    let two = Cell {
                        id: format!("servers/{callers}"),
                        preset: Self::Servers,
                        servers: 2,
                        label: format!("{}, 2 servers", many("caller", callers)),
                        ..message(callers)
                    };
                    [message(callers), two]
                })
                .collect(),
            Self::Connection => {
                let one = |callers, mode, id: &str, label: &str| Cell {
                    callers,
                    mode,
                    connections: 1,
                    ..Cell::echo(self, id, label.to_owned())
                };
                vec![
                    one(1, Mode::Unary, "one-by-one", "one by one"),
                    one(1000, Mode::Unary, "pipelined", "pipelined: 1000 asynchronous callers"),
                    one(1000, Mode::Stream, "stream", "bidirectional stream, 1000 messages outstanding"),
                ]
            }
            Self::Connections => {
                let one = |clients, mode, id: &str, label: &str| Cell {
                    callers: CONNECTIONS_CALLERS / clients,
                    clients,
                    mode,
                    ..Cell::echo(self, id, label.to_owned())
                };
                vec![
                    one(1, Mode::Unary, "long", "long connections, 1 client process"),
                    one(1, Mode::PerCall, "per-call", "a connection for each call, 1 client process"),
                    one(4, Mode::Unary, "long-4", "long connections, 4 client processes"),
                    one(4, Mode::PerCall, "per-call-4", "a connection for each call, 4 client processes"),
                ]
            }
            Self::Codecs => {
                let label = format!("the message, {MESSAGE_BYTES} B");
                vec![Cell { call: Call::Codecs, ..Cell::echo(self, "message", label) }]
            }
            Self::Wires => [100, 1000].map(|callers| message_of(self, callers)).to_vec(),
            // `messaging` has workloads instead, see `messaging.rs`.
            Self::Messaging => Vec::new(),
        }
    }
}

/// The callers of the preset `servers`.
const SERVERS_CALLERS: [u32; 3] = [100, 1000, 5000];

/// The callers of the preset `connections`, over all client processes.
const CONNECTIONS_CALLERS: u32 = 100;

impl Cell {
    fn echo(preset: Preset, id: impl std::fmt::Display, label: String) -> Self {
        Self {
            id: format!("{}/{id}", preset.name()),
            label,
            preset,
            call: Call::Echo,
            mode: Mode::Unary,
            callers: 1,
            bytes: 100,
            connections: 0,
            clients: 1,
            servers: 1,
        }
    }

    /// Returns whether `subject` can make the calls of this cell.
    pub(super) fn is_for(&self, subject: &Subject) -> bool {
        let belongs = match (self.preset, subject.kind) {
            (Preset::Wires, Kind::Rival) => subject.wire.is_some(),
            (Preset::Wires, kind) => matches!(kind, Kind::Ours | Kind::Foreign),
            (_, kind) => kind != Kind::Foreign,
        };
        belongs
            && subject.calls.contains(&self.call)
            && (self.call == Call::Codecs || subject.modes.contains(&self.mode))
    }
}

/// Returns the cells of all `presets` without duplicates.
pub(super) fn cells(presets: &[Preset]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in presets.iter().flat_map(|preset| preset.own_cells()) {
        if !cells.iter().any(|other| other.id == cell.id) {
            cells.push(cell);
        }
    }
    cells
}

fn many(what: &str, count: u32) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::subject;

    #[test]
    fn presets_have_the_cells_that_their_help_promises() {
        let ids = |preset| cells(&[preset]).into_iter().map(|cell| cell.id).collect::<Vec<_>>();
        assert_eq!(ids(Preset::Callers), ["callers/1", "callers/5", "callers/10", "callers/100"]);
        assert_eq!(ids(Preset::Sizes).len(), 6);
        assert_eq!(ids(Preset::Servers)[..2], ["message/100", "servers/100"]);
        assert_eq!(
            ids(Preset::Connection),
            ["connection/one-by-one", "connection/pipelined", "connection/stream"]
        );
        assert_eq!(ids(Preset::Codecs), ["codecs/message"]);
        assert_eq!(ids(Preset::Wires), ["wires/100", "wires/1000"]);
    }

    #[test]
    fn nothing_is_measured_twice() {
        let all = cells(&[Preset::All, Preset::Servers]);
        assert_eq!(all.len(), 4 + 6 + 5 + 3 + 3 + 4 + 1 + 2);
        let four = all.iter().find(|cell| cell.clients == 4).unwrap();
        assert_eq!(four.callers * four.clients, 100);
    }

    #[test]
    fn a_cell_is_for_subjects_that_can_make_its_calls() {
        let is_for = |cell: &Cell, calls: &[Call], modes: &[Mode]| {
            let (calls, modes) = (calls.to_vec(), modes.to_vec());
            cell.is_for(&Subject { calls, modes, ..subject("rival", Kind::Rival) })
        };
        let stream = &cells(&[Preset::Connection])[2];
        assert!(is_for(stream, &[Call::Echo], &[Mode::Unary, Mode::Stream]));
        assert!(!is_for(stream, &[Call::Message], &[Mode::Stream]));
        assert!(!is_for(stream, &[Call::Echo], &[Mode::Unary]));
        assert!(is_for(&cells(&[Preset::Codecs])[0], &[Call::Codecs], &[]));
    }

    #[test]
    fn wires_are_for_subjects_with_a_common_wire() {
        let (wires, message) = (&cells(&[Preset::Wires])[0], &cells(&[Preset::Message])[0]);
        for (subject, in_wires, in_message) in [
            (subject("tonic", Kind::Rival), false, true),
            (subject("rpcx", Kind::Rival), true, true),
            (subject("switchboard on rpcx", Kind::Foreign), true, false),
            (subject("switchboard", Kind::Ours), true, true),
            (subject("floor", Kind::Floor), false, true),
        ] {
            assert_eq!(
                (wires.is_for(&subject), message.is_for(&subject)),
                (in_wires, in_message),
                "{subject:?}"
            );
        }
    }
}
