//! Commands about the server: `INFO`, `COMMAND`, `CONFIG`.

use super::{command::unknown_subcommand, subscriptions::over};
use crate::{
    Outbox,
    resp::{
        Limits, Pattern, Settings, Version,
        write::{write_error, write_head, write_map_head, write_text},
    },
};
use bytes::Bytes;

/// Parameters that `CONFIG GET` reports, because clients and benchmarks read them.
const PARAMETERS: [(&str, &str); 3] = [("appendonly", "no"), ("databases", "1"), ("save", "")];

/// Replies to `INFO`, whatever its sections. Clients read that the server is not loading data, and its version.
pub(super) fn info(settings: &Settings, id: u64, out: &mut Outbox) {
    let (name, version) = (&settings.name, &settings.redis_version);
    let text = format!(
        "# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nserver_name:{name}\r\n\r\n\
         # Clients\r\nclient_id:{id}\r\n\r\n# Persistence\r\nloading:0\r\n\r\n\
         # Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
    );
    write_text(text.as_bytes(), out);
}

/// Replies to `COMMAND` and its subcommands: no command is described.
pub(super) fn command(version: Version, arguments: &[Bytes], out: &mut Outbox) {
    let Some(subcommand) = arguments.first() else { return write_head(b'*', 0, out) };
    match &subcommand.to_ascii_lowercase()[..] {
        b"count" => write_head(b':', 0, out),
        b"docs" => write_map_head(version, 0, out),
        b"info" | b"list" => write_head(b'*', 0, out),
        _ => write_error("ERR", &unknown_subcommand("command", subcommand), out),
    }
}

/// Replies to `CONFIG GET` with the parameters that match. Nothing can be set.
pub(super) fn config(limits: &Limits, version: Version, arguments: &[Bytes], out: &mut Outbox) {
    let (subcommand, patterns) = (&arguments[0], &arguments[1..]);
    if !subcommand.eq_ignore_ascii_case(b"GET") {
        return write_error("ERR", &unknown_subcommand("config", subcommand), out);
    }
    if patterns.is_empty() {
        return write_error("ERR", "wrong number of arguments for 'config|get' command", out);
    }
    let (count, limit) = (patterns.len(), limits.config_patterns_max as usize);
    if count > limit {
        let text = format!("CONFIG GET has {count} patterns; the limit is {limit} (config_patterns_max)");
        return write_error("ERR", &text, out);
    }
    let limit = limits.pattern_bytes_max;
    if let Some(text) = patterns.iter().find_map(|name| over("pattern", name, limit, "pattern_bytes_max")) {
        return write_error("ERR", &text, out);
    }
    let mut found = [false; PARAMETERS.len()];
    for pattern in patterns {
        let pattern = Pattern::new(&pattern.to_ascii_lowercase());
        for ((name, _), found) in PARAMETERS.iter().zip(&mut found) {
            *found |= pattern.matches(name.as_bytes());
        }
    }
    write_map_head(version, found.iter().filter(|found| **found).count(), out);
    for ((name, value), _) in PARAMETERS.iter().zip(found).filter(|(_, found)| *found) {
        write_text(name.as_bytes(), out);
        write_text(value.as_bytes(), out);
    }
}
