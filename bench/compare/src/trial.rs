//! One measurement of one subject in one cell: starts its servers and clients, waits for them, and reads the counts.

use super::{cell::Cell, child::Process, host, subject::Subject};
use crate::peer::{Call, ClientReport, Mode};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The result of one measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Trial {
    #[serde(flatten)]
    pub(super) answer: ClientReport,
    /// CPU seconds of all clients, and of all servers while these ran.
    pub(super) cpu_client_s: f64,
    pub(super) cpu_server_s: f64,
    /// Peak memory of the server; the sum of two servers.
    pub(super) server_peak_bytes: u64,
}

impl Trial {
    pub(super) fn requests_per_s(&self) -> f64 {
        if self.answer.elapsed_s > 0.0 { self.answer.requests as f64 / self.answer.elapsed_s } else { 0.0 }
    }

    /// Returns the CPU time of both sides per call, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        (self.cpu_client_s + self.cpu_server_s) * 1e6 / self.answer.total_requests.max(1) as f64
    }
}

/// The cost of a codec.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct CodecCost {
    pub(super) name: String,
    pub(super) encode_ns: f64,
    pub(super) decode_ns: f64,
    /// Allocations; `None` if they cannot be counted.
    #[serde(default)]
    pub(super) encode_allocs: Option<f64>,
    #[serde(default)]
    pub(super) decode_allocs: Option<f64>,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
struct Codecs {
    codecs: Vec<CodecCost>,
}

/// Duration of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) warm_up: f64,
    pub(super) seconds: f64,
}

/// Time that a client may take beyond its measurement: calls may last 10 seconds.
const GRACE: Duration = Duration::from_secs(25);

/// Measures `subject` in `cell` once.
///
/// # Errors
/// When a process fails. Calls that fail are counted in the result.
pub(super) fn run(subject: &Subject, cell: &Cell, times: Times) -> Result<Trial, String> {
    let call = ["--call".to_owned(), name(cell.call).to_owned()];
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..cell.servers {
        let host = ["--host".to_owned(), host::next().to_string()];
        let mut server = Process::start(&subject.server, &[&call[..], &host].concat())?;
        addresses.push(server.address()?);
        servers.push(server);
    }
    let before = cpu_s(&servers)?;
    let arguments = arguments(cell, &addresses.join(","), times);
    let deadline = Instant::now() + Duration::from_secs_f64(times.warm_up + times.seconds) + GRACE;
    let clients = (0..cell.clients)
        .map(|_| Process::start(&subject.client, &arguments))
        .collect::<Result<Vec<_>, _>>()?;
    let mut cpu_client_s = 0.0;
    let mut answers = Vec::new();
    for client in clients {
        let (line, cpu_s) = client.finish(deadline)?;
        cpu_client_s += cpu_s;
        answers.push(parse(&line)?);
    }
    Ok(Trial {
        answer: if answers.len() == 1 { answers.remove(0) } else { ClientReport::merge(&answers) },
        cpu_client_s,
        cpu_server_s: cpu_s(&servers)? - before,
        server_peak_bytes: servers.iter().map(Process::peak_bytes).sum::<Result<u64, _>>()?,
    })
}

/// Measures the codecs of `subject`.
///
/// # Errors
/// When its client fails.
pub(super) fn codecs(subject: &Subject) -> Result<Vec<CodecCost>, String> {
    let client = Process::start(&subject.client, &["--call".to_owned(), name(Call::Codecs).to_owned()])?;
    let (line, _) = client.finish(Instant::now() + CODECS_LIMIT)?;
    serde_json::from_str::<Codecs>(&line)
        .map(|found| found.codecs)
        .map_err(|error| format!("the client's last line does not follow the contract: {error}: {line:.100}"))
}

/// Time limit of measuring codecs.
const CODECS_LIMIT: Duration = Duration::from_secs(120);

fn parse(line: &str) -> Result<ClientReport, String> {
    let answer: ClientReport = serde_json::from_str(line).map_err(|error| {
        format!("the client's last line does not follow the contract: {error}: {line:.100}")
    })?;
    if answer.requests == 0 {
        let why = answer.first_error.unwrap_or_else(|| "no reply arrived in time".to_owned());
        return Err(format!("no call succeeded: {why}"));
    }
    Ok(answer)
}

fn cpu_s(servers: &[Process]) -> Result<f64, String> {
    servers.iter().map(Process::cpu_s).sum()
}

fn arguments(cell: &Cell, addresses: &str, times: Times) -> Vec<String> {
    [
        ("--call", name(cell.call).to_owned()),
        ("--address", addresses.to_owned()),
        ("--callers", cell.callers.to_string()),
        ("--bytes", cell.bytes.to_string()),
        ("--connections", cell.connections.to_string()),
        ("--warm-up", times.warm_up.to_string()),
        ("--seconds", times.seconds.to_string()),
        ("--mode", mode(cell.mode).to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Echo => "echo",
        Call::Message => "message",
        Call::Codecs => "codecs",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Unary => "unary",
        Mode::PerCall => "per-call",
        Mode::Stream => "stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    /// A subject without a listener; its client prints the address that it was given.
    fn echoing() -> (Subject, Cell) {
        let mut plan = fake::raw(&[], 1.0, 1.0).plan;
        let words = |script: &str| ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        let mut subject = plan.subjects.remove(0);
        subject.server = words(r#"[ "$3" = --host ] && echo "listening on $4:1"; exec cat"#);
        subject.client = words(
            r#"[ "$3" = --address ] && echo "{\"requests\":1,\"total_requests\":1,\"elapsed_s\":1,\"errors\":1,
            \"first_error\":\"$4\",\"mean_us\":1,\"p50_us\":1,\"p99_us\":1,\"max_us\":1}" | tr -d '\n'"#,
        );
        (subject, plan.cells.remove(0))
    }

    #[test]
    fn no_two_servers_listen_on_the_same_address() {
        let (subject, mut cell) = echoing();
        cell.servers = 2;
        let times = Times { warm_up: 0.0, seconds: 0.0 };
        let mut hosts = Vec::new();
        for _ in 0..2 {
            let addresses = run(&subject, &cell, times).unwrap().answer.first_error.unwrap();
            hosts.extend(addresses.split(',').map(|address| address.trim_end_matches(":1").to_owned()));
        }
        assert_eq!(hosts.len(), 4, "{hosts:?}");
        assert!(hosts.iter().all(|host| host.starts_with("127.") && host != "127.0.0.1"), "{hosts:?}");
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), 4, "{hosts:?}");
    }
}
