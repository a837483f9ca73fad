//! `peer.json`: describes a rival under `bench/peers`, how it is built and how it is started.
//!
//! The fields are documented in `bench/peers/README.md`. A folder may contain several variants of a rival; each becomes
//! a separate entry, which takes missing fields from the folder.

use crate::peer::{Call, Mode};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{fs, path::Path};
use switchboard_cli::bench::wire::Wire;

/// A rival, or a variant of one.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Manifest {
    /// Name in tables.
    pub(super) name: String,
    /// Version of the library.
    pub(super) version: String,
    pub(super) language: String,
    /// Arguments, the program first; `{out}` is the folder of the build products.
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
    pub(super) calls: Vec<Call>,
    #[serde(default = "unary")]
    pub(super) modes: Vec<Mode>,
    /// The wire of Switchboard that it supports; the two are then measured with each other.
    #[serde(default)]
    pub(super) wire: Option<Wire>,
    /// Its configuration, with the reasons.
    #[serde(default)]
    pub(super) configuration: String,
    /// License of the library.
    #[serde(default)]
    pub(super) license: String,
    #[serde(default)]
    pub(super) options: Options,
}

/// The one of its settings that the program uses; the others are for readers.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Options {
    /// `per-core` is a separate runtime on each thread.
    #[serde(default)]
    pub(super) runtime: Option<String>,
}

fn unary() -> Vec<Mode> {
    vec![Mode::Unary]
}

/// Reads the manifests of the folder `peer`, with `{out}` replaced by `out`.
///
/// # Errors
/// When there is no `peer.json` or it is invalid; the text says which and why.
pub(super) fn read(peer: &Path, out: &Path) -> Result<Vec<Manifest>, String> {
    let file = peer.join("peer.json");
    let text =
        fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    parse(&text, out).map_err(|error| format!("{}: {error}", file.display()))
}

fn parse(text: &str, out: &Path) -> Result<Vec<Manifest>, String> {
    let mut shared: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if shared.contains_key("messaging") && !shared.contains_key("server") {
        // A library of sockets, which has no calls: `messaging` compares it.
        return Ok(Vec::new());
    }
    let variants = match shared.remove("variants") {
        None => vec![Map::new()],
        Some(Value::Array(variants)) if !variants.is_empty() => variants
            .into_iter()
            .map(|variant| match variant {
                Value::Object(fields) => Ok(fields),
                other => Err(format!("variants: {other} is not an object")),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err("variants: not an array of objects".to_owned()),
    };
    variants
        .into_iter()
        .map(|own| {
            let mut fields = shared.clone();
            fields.extend(own);
            let mut manifest: Manifest =
                serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| error.to_string())?;
            for (what, words) in [("server", &mut manifest.server), ("client", &mut manifest.client)] {
                if words.is_empty() {
                    return Err(format!("{what}: the program is missing"));
                }
                for word in words.iter_mut() {
                    *word = word.replace("{out}", &out.to_string_lossy());
                }
            }
            Ok(manifest)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{ "name": "quick", "version": "1.2", "language": "Go", "apt": ["x"],
        "build": [["go", "build", "-o", "{out}/quick", "."]], "server": ["{out}/quick", "server"],
        "client": ["{out}/quick", "client"], "calls": ["echo", "message"], "modes": ["unary", "per-call"],
        "options": { "threads": 2 }, "configuration": "as it comes", "license": "MIT" }"#;

    #[test]
    fn a_manifest_says_how_to_start_a_rival() {
        let manifests = parse(ONE, Path::new("/products/quick")).unwrap();
        assert_eq!(manifests.len(), 1);
        assert_eq!((manifests[0].name.as_str(), manifests[0].version.as_str()), ("quick", "1.2"));
        assert_eq!(manifests[0].server, ["/products/quick/quick", "server"]);
        assert_eq!(manifests[0].calls, [Call::Echo, Call::Message]);
        assert_eq!(manifests[0].modes, [Mode::Unary, Mode::PerCall]);
    }

    #[test]
    fn variants_take_missing_fields_from_the_folder() {
        let text = r#"{ "name": "q", "version": "1", "language": "C", "server": ["s"], "client": ["c"],
            "calls": ["echo"], "variants": [
                { "name": "q REQ/REP", "server": ["s", "--req"] },
                { "name": "q DEALER", "calls": ["message"], "modes": ["unary", "stream"] }] }"#;
        let manifests = parse(text, Path::new("")).unwrap();
        let names: Vec<_> = manifests.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["q REQ/REP", "q DEALER"]);
        assert_eq!((manifests[0].server.len(), manifests[1].server.len()), (2, 1));
        assert_eq!(
            (&manifests[0].calls[..], &manifests[0].modes[..]),
            (&[Call::Echo][..], &[Mode::Unary][..])
        );
        assert_eq!(manifests[1].calls, [Call::Message]);
    }

    #[test]
    fn a_library_of_sockets_is_no_rival_for_calls() {
        let text = r#"{ "name": "q", "version": "1", "messaging": ["{out}/q"] }"#;
        assert_eq!(parse(text, Path::new("")).map(|manifests| manifests.len()), Ok(0));
    }

    #[test]
    fn errors_name_the_field() {
        for (from, to, named) in [
            (r#""name": "quick","#, "", "name"),
            (r#""per-call""#, r#""twice""#, "modes[1]"),
            (r#"["{out}/quick", "server"]"#, "[]", "server: the program is missing"),
            (r#""license": "MIT""#, r#""variants": 3"#, "variants"),
            (r#""license": "MIT""#, r#""variants": [3]"#, "variants: 3"),
        ] {
            let text = ONE.replace(from, to);
            assert_ne!(text, ONE);
            let error = parse(&text, Path::new("")).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
