//! `switchboard bench overload`: the behaviour of a server that gets more calls than it can handle.
//!
//! The [`server`] has a known capacity. [`load`] sends multiples of it in an open loop, with and without an adaptive
//! limit, each against a separate process. Then a well-behaved tenant calls alongside one that sends the rest.
//! [`result`] checks whether goodput stays flat and whether the well-behaved tenant gets the same service as alone;
//! [`page`] draws the results.

mod load;
mod options;
mod page;
mod result;
mod server;

pub(in crate::bench) use options::OverloadArgs;
pub(crate) use options::OverloadServerArgs;

use super::{machine::Machine, print, process::Server, write};
use crate::terminal::Terminal;
use load::{Flow, Outcome, Times};
use options::Limiter;
use result::{Point, Report, Tenant};
use std::path::Path;

/// Measures and reports.
///
/// # Errors
/// When a server does not start or cannot be reached, a file cannot be written, or calls failed other than by being
/// refused or late; the report comes first.
pub(super) fn run(args: &OverloadArgs, command_line: &str) -> Result<(), String> {
    let machine = Machine::here();
    let mut points = Vec::new();
    for &limit in &args.limits {
        for &load in &args.loads {
            eprintln!("limit {}, {load} times the capacity", limit.name());
            let server = start(args, limit, false)?;
            let flow = Flow { tenant: "all", rate: args.backend.capacity() * load };
            let outcome = measure(args, &server, &[flow])?.remove(0);
            points.push(Point::new(limit.name(), load, &outcome));
        }
    }
    let tenants = if args.no_tenants { Vec::new() } else { tenants(args)? };
    let report = Report::new(args, points, tenants, machine);

    let json = report.json();
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(path) = args.json.as_deref().filter(|_| !to_stdout) {
        write(path, &json)?;
    }
    if let Some(path) = &args.html {
        write(path, &page::render(&report, command_line))?;
    }
    print(&if to_stdout { json } else { report.text(Terminal::stdout()) })?;
    match report.errors() {
        None => Ok(()),
        Some(errors) => Err(errors),
    }
}

/// Serves the calls of [`run`].
///
/// # Errors
/// When it cannot listen or accept.
pub(crate) fn serve(args: &OverloadServerArgs) -> Result<(), String> {
    server::serve(args)
}

/// Load of the well-behaved tenant in multiples of the capacity; the greedy one sends ten times the capacity.
const WELL_BEHAVED: f64 = 0.1;
const GREEDY: f64 = 10.0;

fn tenants(args: &OverloadArgs) -> Result<Vec<Tenant>, String> {
    let limit = args.limits.iter().copied().find(|limit| *limit != Limiter::Off).unwrap_or(Limiter::Auto);
    let capacity = args.backend.capacity();
    let flow = Flow { tenant: "well-behaved", rate: capacity * WELL_BEHAVED };
    let greedy = Flow { tenant: "greedy", rate: capacity * GREEDY };
    let mut tenants = Vec::new();
    for (who, flows, fair) in [
        ("alone", &[flow][..], true),
        ("beside a greedy one, limit alone", &[flow, greedy], false),
        ("beside a greedy one, fair queueing", &[flow, greedy], true),
    ] {
        eprintln!("limit {}, a well-behaved tenant {who}", limit.name());
        let server = start(args, limit, fair)?;
        tenants.push(Tenant::new(who, &measure(args, &server, flows)?[0]));
    }
    Ok(tenants)
}

fn start(args: &OverloadArgs, limit: Limiter, fair: bool) -> Result<Server, String> {
    let mut words = vec!["bench-overload-server".to_owned()];
    words.extend(args.backend.words());
    words.extend(["--limit".to_owned(), limit.name().to_owned()]);
    if fair {
        words.extend(["--fair-ms".to_owned(), args.deadline().as_millis().to_string()]);
    }
    Server::start(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn measure(args: &OverloadArgs, server: &Server, flows: &[Flow]) -> Result<Vec<Outcome>, String> {
    let times = Times { warm_up: args.time(), measured: args.time(), deadline: args.deadline() };
    load::measure(&args.wire.url(server.address()), flows, times)
}
