//! The subjects: Switchboard, also on the wires of other frameworks and under a plain tokio runtime, the floor, every
//! available rival, and Switchboard with rivals that support the same wire.

use super::manifest::{self, Manifest};
use crate::peer::{Call, Mode};
use serde::{Deserialize, Serialize};
use std::{
    env, fs,
    path::{Path, PathBuf},
};
use switchboard_cli::bench::wire::Wire;

/// One subject of the comparison: its name in tables, and its command lines.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) version: String,
    pub(super) language: String,
    pub(super) calls: Vec<Call>,
    pub(super) modes: Vec<Mode>,
    pub(super) configuration: String,
    pub(super) license: String,
    /// True if each thread has a separate runtime without work stealing, like Switchboard's workers.
    #[serde(default)]
    pub(super) is_per_core: bool,
    /// The wire that a rival shares with Switchboard.
    #[serde(default)]
    pub(super) wire: Option<Wire>,
    /// Command lines, not stored in results because they contain paths of this machine.
    #[serde(skip)]
    pub(super) server: Vec<String>,
    #[serde(skip)]
    pub(super) client: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The bare loop, the upper bound for all others.
    Floor,
    /// Switchboard in its default configuration.
    Ours,
    /// Switchboard in another configuration.
    OursToo,
    /// Switchboard on the wire of another framework, with itself or with that framework.
    Foreign,
    Rival,
}

/// A rival that cannot be measured, with the reason.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Absent {
    pub(super) name: String,
    pub(super) reason: String,
}

pub(super) const OURS: &str = "switchboard";
pub(super) const TOKIO: &str = "switchboard, tokio runtime";
pub(super) const FLOOR: &str = "floor";

/// All available subjects.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) subjects: Vec<Subject>,
    pub(super) absent: Vec<Absent>,
}

impl Found {
    /// Searches for rivals in the folders of `peers` that have a manifest; their build products are in the folders with
    /// the same names in `built`.
    ///
    /// # Errors
    /// When the path of this program cannot be found.
    pub(super) fn look(peers: &Path, built: &Path) -> Result<Self, String> {
        let itself =
            env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
        let own = own(&itself);
        let mut found = Self { subjects: own.to_vec(), absent: Vec::new() };
        let mut folders: Vec<PathBuf> = fs::read_dir(peers)
            .map(|entries| {
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.join("peer.json").is_file())
                    .collect()
            })
            .unwrap_or_default();
        folders.sort();
        for folder in folders {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let out = built.join(&name);
            match manifest::read(&folder, &out) {
                Ok(manifests) => found.add(manifests, &out),
                Err(reason) => found.absent.push(Absent { name, reason }),
            }
        }
        found.pair(&own[0]);
        Ok(found)
    }

    /// Adds each rival that supports a wire of Switchboard, once as the client and once as the server.
    fn pair(&mut self, ours: &Subject) {
        let rivals = self.subjects.iter().filter_map(|rival| Some((rival, rival.wire?)));
        let pairs: Vec<Subject> = rivals
            .flat_map(|(rival, wire)| {
                let pair = |name: String, server: &[String], client: Vec<String>| Subject {
                    name,
                    server: server.to_vec(),
                    client,
                    configuration: "each as it is configured by itself".to_owned(),
                    ..ours.foreign(wire.name())
                };
                let rivals_client = format!("{} client, {OURS} server", rival.name);
                let rivals_server = format!("{OURS} client, {} server", rival.name);
                [
                    pair(rivals_client, &ours.server, rival.client.clone()),
                    pair(rivals_server, &rival.server, ours.foreign(wire.name()).client),
                ]
            })
            .collect();
        self.subjects.extend(pairs);
    }

    fn add(&mut self, manifests: Vec<Manifest>, out: &Path) {
        // `cargo xtask peers` writes the reasons for failed builds to this file.
        let failed = fs::read_to_string(out.join("absent.txt")).ok();
        for (at, mut manifest) in manifests.into_iter().enumerate() {
            if at > 0 {
                // All variants of a rival have the same codecs.
                manifest.calls.retain(|&call| call != Call::Codecs);
            }
            let missing = [&manifest.server, &manifest.client]
                .into_iter()
                .find(|words| !is_program(&words[0]))
                .map(|_| "not built: run `cargo xtask peers`".to_owned());
            match failed.as_ref().map(|reason| reason.trim().to_owned()).or(missing) {
                Some(reason) => self.absent.push(Absent { name: manifest.name, reason }),
                None => self.subjects.push(Subject::rival(manifest)),
            }
        }
    }

    /// Keeps Switchboard, and of the other subjects only the `wanted` ones, if any are named.
    ///
    /// # Errors
    /// When a name is unknown; the text lists the known ones.
    pub(super) fn select(mut self, wanted: &[String]) -> Result<Self, String> {
        if wanted.is_empty() {
            return Ok(self);
        }
        let known: Vec<&str> = self
            .subjects
            .iter()
            .map(|one| &one.name)
            .chain(self.absent.iter().map(|one| &one.name))
            .map(String::as_str)
            .collect();
        for name in wanted {
            if !known.iter().any(|known| is_called(known, name)) {
                return Err(format!("unknown rival {name:?}; available: {}", known.join("; ")));
            }
        }
        let is_wanted = |name: &str| wanted.iter().any(|wanted| is_called(name, wanted));
        self.subjects.retain(|one| one.kind == Kind::Ours || is_wanted(&one.name));
        self.absent.retain(|one| is_wanted(&one.name));
        Ok(self)
    }
}

impl Subject {
    fn rival(manifest: Manifest) -> Self {
        Self {
            name: manifest.name,
            kind: Kind::Rival,
            version: manifest.version,
            language: manifest.language,
            calls: manifest.calls,
            modes: manifest.modes,
            configuration: manifest.configuration,
            license: manifest.license,
            is_per_core: manifest.options.runtime.as_deref() == Some("per-core"),
            wire: manifest.wire,
            server: manifest.server,
            client: manifest.client,
        }
    }

    /// Returns Switchboard on the wire with this name, with itself.
    fn foreign(&self, wire: &str) -> Self {
        Self {
            name: format!("{OURS} on {wire}"),
            kind: Kind::Foreign,
            calls: vec![Call::Message],
            modes: vec![Mode::Unary],
            configuration: format!("as on its native wire, on {wire}"),
            client: [&self.client[..], &["--wire".to_owned(), wire.to_owned()]].concat(),
            ..self.clone()
        }
    }
}

/// Returns whether `name` contains `short`: `libzmq` selects all its variants.
fn is_called(name: &str, short: &str) -> bool {
    !plain(short).is_empty() && plain(name).contains(&plain(short))
}

/// Normalises a name for comparison: `gRPC C++` is `grpccpp`.
pub(super) fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace("++", "pp");
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn own(itself: &Path) -> [Subject; 6] {
    let line = |engine: &str, role: &str| {
        vec![itself.to_string_lossy().into_owned(), "peer".to_owned(), engine.to_owned(), role.to_owned()]
    };
    let own = |name: &str, kind, engine: &str, calls: &[Call], configuration: &str| Subject {
        name: name.to_owned(),
        kind,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        language: "Rust".to_owned(),
        calls: calls.to_vec(),
        modes: vec![Mode::Unary, Mode::PerCall, Mode::Stream],
        configuration: configuration.to_owned(),
        license: env!("CARGO_PKG_LICENSE").to_owned(),
        is_per_core: kind != Kind::OursToo,
        wire: None,
        server: line(engine, "server"),
        client: line(engine, "client"),
    };
    let ours = own(
        OURS,
        Kind::Ours,
        "pinned",
        &[Call::Echo, Call::Message, Call::Codecs],
        "native wire, a pinned worker and a connection for each core, deadlines, limits and metrics on",
    );
    let [rpcx, baidu_std, thrift] = ["rpcx", "baidu_std", "thrift"].map(|wire| ours.foreign(wire));
    [
        ours,
        own(
            TOKIO,
            Kind::OursToo,
            "tokio",
            &[Call::Echo, Call::Message],
            "the same under the multi-thread runtime of #[tokio::main], on both sides",
        ),
        own(
            FLOOR,
            Kind::Floor,
            "floor",
            &[Call::Echo, Call::Message],
            "the bare loop: no codec, limits, deadlines, metrics or failures; the limit of this machine",
        ),
        rpcx,
        baidu_std,
        thrift,
    ]
}

/// Returns whether `program` can be started: a file, or a name that is found in PATH.
fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let own = own(Path::new("/switchboard"));
        let mut found = Found { subjects: own.to_vec(), absent: Vec::new() };
        for name in ["libzmq REQ/REP", "libzmq DEALER/ROUTER", "gRPC C++"] {
            found.subjects.push(Subject { name: name.to_owned(), kind: Kind::Rival, ..own[0].clone() });
        }
        found.absent.push(Absent { name: "erpc".to_owned(), reason: "no go".to_owned() });
        found
    }

    fn select(wanted: &[&str]) -> Result<Vec<String>, String> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        Ok(found().select(&wanted)?.subjects.into_iter().map(|one| one.name).collect())
    }

    #[test]
    fn rivals_are_selected_by_their_names_or_parts_of_them() {
        assert_eq!(select(&[]).unwrap().len(), 9);
        assert_eq!(select(&["floor"]).unwrap(), [OURS, FLOOR]);
        assert_eq!(select(&["libzmq"]).unwrap(), [OURS, "libzmq REQ/REP", "libzmq DEALER/ROUTER"]);
        assert_eq!(select(&["libzmq-req-rep", "grpc-c++"]).unwrap(), [OURS, "libzmq REQ/REP", "gRPC C++"]);
        assert_eq!(select(&["erpc"]).unwrap(), [OURS]);
    }

    #[test]
    fn rivals_that_speak_a_wire_of_ours_are_paired_with_it() {
        let mut found = found();
        let (ours, rival) = (found.subjects[0].clone(), found.subjects.last_mut().unwrap());
        (rival.name, rival.wire) = ("rpcx".to_owned(), Some(Wire::named("rpcx").unwrap()));
        (rival.server, rival.client) = (vec!["S".to_owned()], vec!["C".to_owned()]);
        found.pair(&ours);
        let [.., theirs, back] = &found.subjects[..] else { panic!("{found:?}") };
        assert_eq!(theirs.name, "rpcx client, switchboard server");
        assert_eq!((&theirs.server, theirs.client.concat()), (&ours.server, "C".to_owned()));
        assert_eq!(back.name, "switchboard client, rpcx server");
        assert_eq!(
            (back.server.concat().as_str(), &back.client[2..]),
            ("S", &["pinned", "client", "--wire", "rpcx"].map(str::to_owned)[..])
        );
        assert_eq!(found.subjects.iter().filter(|one| one.kind == Kind::Foreign).count(), 5);
    }

    #[test]
    fn an_unknown_rival_lists_the_known_ones() {
        let error = select(&["floor", "carrier-pigeon"]).unwrap_err();
        assert!(error.contains("\"carrier-pigeon\"") && error.contains("gRPC C++; erpc"), "{error}");
    }

    #[test]
    fn rivals_that_are_not_built_are_absent_with_the_reason() {
        let folder = env::temp_dir().join(format!("switchboard-peers-{}", std::process::id()));
        let (peers, built) = (folder.join("peers"), folder.join("built"));
        for name in ["broken", "failed", "unbuilt", "well"] {
            fs::create_dir_all(peers.join(name)).unwrap();
            fs::create_dir_all(built.join(name)).unwrap();
            let manifest = format!(
                r#"{{ "name": "{name}", "version": "1", "language": "C", "server": ["{{out}}/s"],
                "client": ["sh"], "calls": ["echo"] }}"#
            );
            fs::write(peers.join(name).join("peer.json"), if name == "broken" { "{" } else { &manifest })
                .unwrap();
        }
        fs::write(built.join("failed/absent.txt"), "no compiler\n").unwrap();
        fs::write(built.join("well/s"), "").unwrap();
        let found = Found::look(&peers, &built).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.subjects.last().unwrap().name, "well");
        let absent: Vec<_> =
            found.absent.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
        assert_eq!(absent[1], ("failed", "no compiler"));
        assert_eq!(absent[2], ("unbuilt", "not built: run `cargo xtask peers`"));
        assert!(absent[0].0 == "broken" && absent[0].1.contains("peer.json"), "{absent:?}");
    }
}
