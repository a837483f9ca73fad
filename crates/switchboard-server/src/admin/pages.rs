//! Content of the built-in pages, and the request that changes a flag.

use super::{
    listener::View,
    page::{Cell, Form, Page, Table},
    recent::recent,
    sources,
    subscribers::subscribers,
};
use ::http::{Request, StatusCode, Uri, header::ACCEPT};
use bytes::Bytes;
use std::{sync::atomic::Ordering, time::Duration};
use switchboard_core::{
    Limit, clock,
    flags::Flag,
    limits::Unit,
    metrics::{ConnectionProtocol, Latency},
};
use switchboard_driver::serving::{Phase, ServerState};
use switchboard_wire::Code;

/// Maximum number of rows on a page.
const ROWS_MAX: usize = 1000;
/// Time limit for connections to report their parked calls.
const PATIENCE: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:1.5rem;max-width:90rem}\
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:1.2rem 0 .3rem}\
table{border-collapse:collapse;font:13px/1.4 ui-monospace,monospace}\
th,td{text-align:left;padding:.15rem .9rem .15rem 0;border-bottom:1px solid #8884;vertical-align:top}\
td.n{text-align:right}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}";

/// Built-in pages of every server, with their descriptions.
const INDEX: [(&str, &str); 14] = [
    ("/status", "methods with calls, failures and percentiles; connections by protocol"),
    ("/vars", "every counter by name; ?filter=TEXT"),
    ("/connections", "open connections, the oldest first"),
    ("/subscribers", "connections of plugins; ?plugin=NAME&from=POSITION"),
    ("/counters", "counters of plugins, topics and parts of the application; ?source=NAME"),
    ("/calls", "calls that wait in handlers, the oldest first"),
    ("/recent", "calls that the logs took, the last one first; ?filter=TEXT&slower=TIME"),
    ("/peers", "callers by address, the busiest first"),
    ("/limits", "current limits and their sources"),
    ("/flags", "what may be changed while the server runs"),
    ("/registry", "registrations of the server with registries"),
    ("/health", "for probes: /health/live, /health/started, /health/ready"),
    ("/metrics", "for Prometheus"),
    ("/version", "what runs here"),
];

/// Response to a request for a page.
pub(super) struct PageResponse {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) content: Bytes,
}

impl PageResponse {
    pub(super) fn failure(status: StatusCode, why: impl std::fmt::Display) -> PageResponse {
        PageResponse { status, kind: TEXT, content: format!("{why}\n").into() }
    }

    fn of(page: &Page, form: Form) -> PageResponse {
        let kind = match form {
            Form::Html => HTML,
            Form::Json => JSON,
            Form::Text => TEXT,
        };
        PageResponse { status: StatusCode::OK, kind, content: page.render(form).into() }
    }
}

/// Responds to a request for a page.
pub(super) async fn show<B>(view: &View, request: &Request<B>, form: Form) -> PageResponse {
    let shared = &view.shared;
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let name = path.strip_prefix('/').unwrap_or(path);
    if let Some((_, page)) = view.pages.iter().find(|(known, _)| known == name) {
        return PageResponse::of(&page(), form);
    }
    let page = match path {
        "/" => index(view),
        "/status" => status(shared),
        "/vars" => vars(shared, query),
        "/connections" => connections(shared),
        "/subscribers" => match subscribers(shared, query).await {
            Ok(page) => page,
            Err(response) => return response,
        },
        "/counters" => sources::counters(shared, query),
        "/calls" => calls(shared).await,
        "/recent" => match recent(&shared.access, query) {
            Ok(page) => page,
            Err(response) => return response,
        },
        "/peers" => peers(shared),
        "/limits" => limits(shared),
        "/flags" => flags(shared),
        "/registry" => Page::new("registry").note("this server is not registered with a registry"),
        "/version" => Page::new("version").table(about(shared)),
        "/health" | "/health/ready" | "/health/started" | "/health/live" => {
            return health(shared.phase(), path, form);
        }
        "/metrics" => return metrics(shared, request),
        "/style.css" => {
            return PageResponse { status: StatusCode::OK, kind: "text/css", content: STYLE.into() };
        }
        _ => match sources::list(shared, name, query).await {
            Some(Ok(page)) => page,
            Some(Err(response)) => return response,
            None => {
                let why = format!("no page is at {path}; / lists them");
                return PageResponse::failure(StatusCode::NOT_FOUND, why);
            }
        },
    };
    PageResponse::of(&page, form)
}

/// Changes a flag: `POST /flags/NAME?value=VALUE&expires=TIME&by=WHO`.
pub(super) fn change(view: &View, uri: &Uri, peer: &str) -> PageResponse {
    let Some(name) = uri.path().strip_prefix("/flags/") else {
        return PageResponse::failure(StatusCode::NOT_FOUND, "POST goes to /flags/NAME?value=VALUE");
    };
    let query = uri.query().unwrap_or_default();
    let Some(value) = parameter(query, "value") else {
        return PageResponse::failure(StatusCode::BAD_REQUEST, "value=VALUE is missing");
    };
    let expires = parameter(query, "expires").map(|text| Unit::Milliseconds.parse(text)).transpose();
    let expires = match expires {
        Ok(expires) => expires.map(Duration::from_millis),
        Err(error) => return PageResponse::failure(StatusCode::BAD_REQUEST, format!("expires: {error}")),
    };
    let by = match parameter(query, "by") {
        Some(who) => format!("{who} ({peer})"),
        None => peer.to_owned(),
    };
    match view.shared.flags.set(name, value, expires, &by) {
        Ok(flag) => PageResponse::of(&Page::new("flags").table(flag_table([&flag])), Form::Json),
        Err(error) => PageResponse::failure(StatusCode::BAD_REQUEST, error),
    }
}

/// Returns the raw value of a query parameter, without percent-decoding.
pub(super) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = query.split('&').filter_map(|part| part.split_once('='));
    parts.find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn index(view: &View) -> Page {
    let mut pages = Table::new("pages", ["path", "what"]);
    for (path, what) in INDEX {
        pages.push([path.into(), what.into()]);
    }
    for list in view.shared.sources.lists() {
        let what = "a list of the sources of /counters; ?source=NAME&filter=TEXT&from=POSITION&period=TIME";
        pages.push([format!("/{list}").into(), what.into()]);
    }
    for (name, _) in &view.pages {
        pages.push([format!("/{name}").into(), "of the application".into()]);
    }
    Page::new("switchboard").note("every page comes as JSON with ?format=json").table(pages)
}

fn about(shared: &ServerState) -> Table {
    Table::facts("about")
        .fact("switchboard", env!("CARGO_PKG_VERSION"))
        .fact("pid", u64::from(std::process::id()))
        .fact("state", shared.phase().name())
        .fact("uptime_s", shared.metrics.began.elapsed().as_secs())
}

fn status(shared: &ServerState) -> Page {
    let stats = shared.stats();
    let mut listeners = Table::new("listeners", ["address"]);
    for (_, address) in shared.listening() {
        listeners.push([address.to_string().into()]);
    }
    let mut protocols =
        Table::new("connections", ["protocol", "open", "opened", "received_bytes", "sent_bytes"]);
    for protocol in &stats.protocols {
        protocols.push([
            protocol.protocol.into(),
            protocol.open.into(),
            protocol.connections.into(),
            protocol.received.into(),
            protocol.sent.into(),
        ]);
    }
    let mut methods = Table::new(
        "methods",
        [
            "method",
            "wire",
            "calls",
            "failed",
            "in_flight",
            "mean_us",
            "p50_us",
            "p90_us",
            "p99_us",
            "p999_us",
            "received_bytes",
            "sent_bytes",
        ],
    );
    let mut codes = Table::new("failures", ["method", "wire", "code", "calls"]);
    for method in &stats.methods {
        for wire in &method.wires {
            let calls = wire.ended.iter().sum::<u64>();
            let at = |part| microseconds(&wire.times, part);
            methods.push([
                method.name.as_str().into(),
                wire.wire.into(),
                calls.into(),
                (calls - wire.ended[0]).into(),
                wire.in_flight.into(),
                (calls > 0).then(|| wire.total.as_secs_f64() * 1e6 / calls as f64).into(),
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                wire.received.into(),
                wire.sent.into(),
            ]);
            for (number, calls) in wire.ended.iter().enumerate().skip(1).filter(|(_, calls)| **calls > 0) {
                let code = Code::from_number(number as u16).name();
                codes.push([method.name.as_str().into(), wire.wire.into(), code.into(), (*calls).into()]);
            }
        }
    }
    let about = about(shared)
        .fact("connections", stats.connections)
        .fact("connections_accepted", stats.accepted)
        .fact("calls_in_flight", stats.calls_in_flight)
        .fact("memory_held_bytes", stats.memory.held)
        .fact("unknown_protocol", stats.unknown_protocol)
        .fact("disabled_wires", stats.disabled_wires)
        .fact("protocol_errors", stats.protocol_errors);
    Page::new("status").table(about).table(listeners).table(protocols).table(methods).table(codes)
}

fn microseconds(times: &Latency, part: f64) -> Cell {
    (times.count() > 0).then(|| times.quantile(part).as_secs_f64() * 1e6).into()
}

fn vars(shared: &ServerState, query: &str) -> Page {
    let filter = parameter(query, "filter").unwrap_or_default();
    let text = shared.stats().prometheus();
    let mut vars = Table::facts("vars");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
    for (name, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
        if name.contains(filter) {
            vars = vars.fact(name, value.parse::<f64>().map_or_else(|_| value.into(), Cell::from));
        }
    }
    Page::new("vars").table(vars)
}

fn connections(shared: &ServerState) -> Page {
    let mut table = Table::new(
        "connections",
        [
            "number",
            "peer",
            "protocol",
            "age_s",
            "waiting",
            "held_bytes",
            "paused",
            "calls",
            "lost",
            "received",
            "sent",
        ],
    );
    let now = clock::now();
    let open = shared.open();
    let all = open.len();
    let mut oldest: Vec<_> = open.iter().collect();
    oldest.sort_unstable_by_key(|(number, _)| **number);
    for (number, open) in oldest.into_iter().take(ROWS_MAX) {
        let (counts, (held, paused)) = (open.counts(), open.held_bytes_and_pause());
        let count =
            |part: fn(&switchboard_core::metrics::ConnectionCounts) -> u64| counts.as_ref().map(part).into();
        table.push([
            (*number).into(),
            (*open.address).into(),
            open.protocol.map(ConnectionProtocol::name).into(),
            now.saturating_duration_since(open.began).as_secs().into(),
            (open.waiting() as u64).into(),
            (held as u64).into(),
            paused.then_some("memory_bytes_max").into(),
            count(|counts| counts.started),
            count(|counts| counts.lost),
            count(|counts| counts.received),
            count(|counts| counts.sent),
        ]);
    }
    drop(open);
    let page = Page::new("connections").table(table);
    let page = if shared.counts_sockets() {
        page
    } else {
        page.note("calls and messages of connections are counted with `channelz` only")
    };
    if all > ROWS_MAX { page.note(format!("the oldest {ROWS_MAX} of {all}")) } else { page }
}

async fn calls(shared: &ServerState) -> Page {
    let (calls, missing) = shared.calls(PATIENCE).await;
    let mut table =
        Table::new("calls", ["age_ms", "left_ms", "method", "wire", "peer", "connection", "stage"]);
    let now = clock::now();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    for call in &calls {
        table.push([
            milliseconds(now.saturating_duration_since(call.began)).into(),
            call.deadline.map(|end| milliseconds(end.saturating_duration_since(now))).into(),
            shared.table.full_name(call.method).into(),
            call.wire.name().into(),
            call.peer.address.as_str().into(),
            call.peer.connection.into(),
            call.stage.into(),
        ]);
    }
    let all = shared.parked.load(Ordering::Relaxed);
    let page = Page::new("calls").table(table);
    let page = match missing {
        0 => page,
        _ => page
            .note(format!("{missing} connections did not respond within {PATIENCE:?}: their worker is busy")),
    };
    if all > calls.len() { page.note(format!("{} of {all}", calls.len())) } else { page }
}

fn peers(shared: &ServerState) -> Page {
    let columns = ["peer", "open", "connections", "calls", "failed", "received_bytes", "sent_bytes"];
    let mut table = Table::new("peers", columns);
    for peer in shared.metrics.peers.stats() {
        table.push([
            peer.address.into(),
            peer.open.into(),
            peer.connections.into(),
            peer.calls.into(),
            peer.failed.into(),
            peer.received.into(),
            peer.sent.into(),
        ]);
    }
    Page::new("peers").table(table)
}

fn limits(shared: &ServerState) -> Page {
    let mut table = Table::new("limits", ["limit", "value", "source", "what"]);
    for limit in Limit::ALL {
        let (value, source) = (shared.limits.get(*limit), shared.limits.source(*limit));
        let value = limit.unit().show(value);
        table.push([limit.name().into(), value.into(), source.to_string().into(), limit.doc().into()]);
    }
    Page::new("limits").note("those of the server; listeners may have their own").table(table)
}

fn flags(shared: &ServerState) -> Page {
    let mut changes = Table::new("changes", ["seconds_ago", "change"]);
    let now = clock::time_of_day();
    for change in shared.flags.changes() {
        let ago = now.duration_since(change.at).unwrap_or_default();
        changes.push([ago.as_secs().into(), change.to_string().into()]);
    }
    Page::new("flags")
        .note("to change one: POST /flags/NAME?value=VALUE, and &expires=10min to have it back after that")
        .table(flag_table(shared.flags.all()))
        .table(changes)
}

fn flag_table<'a>(flags: impl IntoIterator<Item = &'a Flag>) -> Table {
    let mut table = Table::new("flags", ["flag", "value", "expires_s", "what"]);
    for flag in flags {
        table.push([
            flag.name().into(),
            flag.text().into(),
            flag.lent().map(|(left, _)| left.as_secs_f64()).into(),
            flag.doc().into(),
        ]);
    }
    table
}

/// Probes read only the HTTP status.
fn health(phase: Phase, path: &str, form: Form) -> PageResponse {
    let is_healthy = match path {
        "/health/live" => true,
        "/health/started" => phase != Phase::Starting,
        _ => phase == Phase::Serving,
    };
    let word = if is_healthy { "SERVING" } else { "NOT_SERVING" };
    let page = Page::new(word).table(Table::facts("health").fact("status", word).fact("state", phase.name()));
    let status = if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    PageResponse { status, ..PageResponse::of(&page, form) }
}

fn metrics<B>(shared: &ServerState, request: &Request<B>) -> PageResponse {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let stats = shared.stats();
    let (kind, content) = if accept.contains("application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", stats.open_metrics())
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", stats.prometheus())
    };
    PageResponse { status: StatusCode::OK, kind, content: content.into() }
}
