//! Generated results for tests.

use super::{
    cell::{self, Preset},
    plan::Plan,
    raw::{Outcome, Raw, Row},
    subject::{Absent, FLOOR, Kind, OURS, Subject, TOKIO},
    trial::{CodecCost, Trial},
};
use crate::peer::{Call, ClientReport, Mode};
use switchboard_cli::bench::wire::Wire;

/// A run of every preset in three rounds, with rivals of such names, requests a second and p99 in microseconds, and
/// Switchboard with its own.
pub(super) fn raw(rivals: &[(&str, f64, f64)], requests_per_s: f64, p99_us: f64) -> Raw {
    let rate = requests_per_s;
    let all = [
        (OURS, Kind::Ours, rate, p99_us),
        (TOKIO, Kind::OursToo, rate / 3.0, p99_us),
        (FLOOR, Kind::Floor, rate * 2.0, p99_us / 2.0),
    ];
    let rivals = rivals.iter().map(|&(name, rate, p99_us)| (name, Kind::Rival, rate, p99_us));
    let foreign = [
        ("switchboard on rpcx", Kind::Foreign, rate * 0.8, p99_us),
        ("rpcx client, switchboard server", Kind::Foreign, rate / 2.0, p99_us),
    ];
    let all: Vec<_> = all.into_iter().chain(rivals).chain(foreign).collect();
    let cells = cell::cells(&[Preset::All]);
    let mut rows = Vec::new();
    for cell in &cells {
        for &(name, _, rate, p99_us) in &all {
            for round in 1..=3 {
                // The rounds before and after the median are a tenth off.
                let rate = rate * (0.8 + 0.1 * f64::from(round));
                let outcome = match cell.call {
                    Call::Codecs => Outcome::Codecs(vec![codec(round)]),
                    _ => Outcome::Measured(trial(rate, p99_us)),
                };
                rows.push(Row { cell: cell.id.clone(), subject: name.to_owned(), round, outcome });
            }
        }
    }
    let plan = Plan {
        presets: vec!["all".to_owned()],
        rounds: 3,
        seconds: 2.0,
        warm_up: 0.5,
        cpu: "Some CPU".to_owned(),
        cores: 2,
        kernel: "6.1".to_owned(),
        cells,
        subjects: all.iter().map(|&(name, kind, _, _)| subject(name, kind)).collect(),
        absent: vec![Absent { name: "erpc".to_owned(), reason: "no <go>".to_owned() }],
    };
    Raw {
        command: "bench-compare --html <x>".to_owned(),
        started: "2026-01-01T00:00:00Z".to_owned(),
        version: "0.1.0".to_owned(),
        plan,
        rows,
    }
}

pub(super) fn subject(name: &str, kind: Kind) -> Subject {
    Subject {
        name: name.to_owned(),
        kind,
        version: "1.2.3".to_owned(),
        language: if name.to_lowercase().contains("go") { "Go" } else { "Rust" }.to_owned(),
        calls: vec![Call::Echo, Call::Message, Call::Codecs],
        modes: vec![Mode::Unary, Mode::PerCall, Mode::Stream],
        configuration: "as it comes".to_owned(),
        license: "MIT".to_owned(),
        is_per_core: name == "tarpc",
        wire: (name == "rpcx").then(|| Wire::named("rpcx").expect("rpcx is in this build")),
        server: Vec::new(),
        client: Vec::new(),
    }
}

fn trial(rate: f64, p99_us: f64) -> Trial {
    let requests = (rate * 1000.0) as u64;
    Trial {
        answer: ClientReport {
            requests,
            total_requests: requests,
            elapsed_s: requests as f64 / rate,
            errors: 0,
            first_error: None,
            mean_us: p99_us / 1.9,
            min_us: p99_us / 9.0,
            p50_us: p99_us / 2.0,
            p90_us: p99_us / 1.2,
            p99_us,
            p999_us: p99_us * 1.5,
            max_us: p99_us * 4.0,
        },
        cpu_client_s: requests as f64 / rate,
        cpu_server_s: requests as f64 / rate,
        server_peak_bytes: (1e9 / rate) as u64,
    }
}

fn codec(round: u32) -> CodecCost {
    CodecCost {
        name: "protobuf".to_owned(),
        encode_ns: 100.0 * f64::from(round),
        decode_ns: 700.0,
        encode_allocs: Some(1.0),
        decode_allocs: None,
        bytes: 581,
    }
}
