//! The JSON form of OTLP 1.x: ids in hexadecimal digits, 64-bit numbers as text, enumerations as numbers.

use super::{Settings, spans::Span};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use switchboard_core::{ServerStats, WireStats};
use switchboard_wire::Code;

/// Enumeration values: kinds of spans, codes of a status, temporality of sums.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const FAILED: u8 = 2;
const CUMULATIVE: u8 = 2;

/// Returns the body of a request to `/v1/traces`.
pub(super) fn spans(settings: &Settings, spans: &[Span]) -> String {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({"scope": scope(), "spans": spans});
    json!({"resourceSpans": [{"resource": resource(settings), "scopeSpans": [scope]}]}).to_string()
}

fn span(span: &Span) -> Value {
    let began = nanos(span.began);
    let name = format!("{}/{}", span.service, span.method);
    let place = if span.incoming { "client.address" } else { "server.address" };
    let mut attributes = vec![
        text("rpc.system.name", "switchboard"),
        text("rpc.service", &span.service),
        text("rpc.method", &span.method),
        text("rpc.response.status_code", span.code.name()),
        text("network.protocol.name", span.wire),
        text(place, &span.peer),
    ];
    let mut value = json!({
        "traceId": span.trace.id(),
        "spanId": span.trace.span_id(),
        "name": name,
        "kind": if span.incoming { SERVER } else { CLIENT },
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": began.saturating_add(span.nanos).to_string(),
        "flags": u8::from(span.trace.is_sampled()),
    });
    if let Some(parent) = span.trace.parent_id() {
        value["parentSpanId"] = json!(parent);
    }
    if let Some(state) = span.trace.state() {
        value["traceState"] = json!(state);
    }
    if span.code != Code::Ok {
        attributes.push(text("error.type", span.code.name()));
        value["status"] = json!({"code": FAILED, "message": span.message});
    }
    value["attributes"] = Value::Array(attributes);
    value
}

/// Returns the body of a request to `/v1/metrics`: counts since the server's start.
pub(super) fn metrics(
    settings: &Settings,
    stats: &ServerStats,
    since: SystemTime,
    now: SystemTime,
) -> String {
    let times =
        json!({"startTimeUnixNano": nanos(since).to_string(), "timeUnixNano": nanos(now).to_string()});
    let point = |attributes: Vec<Value>, rest: Value| {
        let mut point = times.clone();
        point["attributes"] = Value::Array(attributes);
        for (name, value) in rest.as_object().into_iter().flatten() {
            point[name] = value.clone();
        }
        point
    };
    let number = |value: u64| json!({"asInt": value.to_string()});
    let (mut calls, mut seconds, mut in_flight, mut received, mut sent) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for method in &stats.methods {
        let (service, name) = method.name.split_once('/').unwrap_or((&method.name, ""));
        for wire in &method.wires {
            let labels = || {
                vec![
                    text("rpc.service", service),
                    text("rpc.method", name),
                    text("network.protocol.name", wire.wire),
                ]
            };
            for (code, count) in wire.ended.iter().enumerate().filter(|(_, count)| **count > 0) {
                let code = Code::from_number(code as u16);
                let mut labels = labels();
                labels.push(text("rpc.response.status_code", code.name()));
                calls.push(point(labels, number(*count)));
            }
            seconds.push(point(labels(), histogram(wire)));
            in_flight.push(point(labels(), number(wire.in_flight)));
            received.push(point(labels(), number(wire.received)));
            sent.push(point(labels(), number(wire.sent)));
        }
    }
    let open =
        stats.protocols.iter().filter(|protocol| protocol.connections > 0).map(|protocol| {
            point(vec![text("network.protocol.name", protocol.protocol)], number(protocol.open))
        });
    let sum = |name: &str, unit: &str, rises: bool, points: Vec<Value>| {
        let sum = json!({"aggregationTemporality": CUMULATIVE, "isMonotonic": rises, "dataPoints": points});
        json!({"name": name, "unit": unit, "sum": sum})
    };
    let all = [
        sum("switchboard.calls", "{call}", true, calls),
        json!({
            "name": "rpc.server.call.duration", "unit": "s",
            "histogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": seconds},
        }),
        sum("switchboard.calls.in_flight", "{call}", false, in_flight),
        sum("switchboard.received", "By", true, received),
        sum("switchboard.sent", "By", true, sent),
        sum("switchboard.connections.open", "{connection}", false, open.collect()),
    ];
    let scope = json!({"scope": scope(), "metrics": all});
    json!({"resourceMetrics": [{"resource": resource(settings), "scopeMetrics": [scope]}]}).to_string()
}

/// Converts latencies to a histogram with bounds at powers of two; the first and the last bucket include
/// everything beyond them.
fn histogram(wire: &WireStats) -> Value {
    const FIRST: Duration = Duration::from_nanos(1 << 15);
    const BOUNDS: u32 = 22;
    let bounds: Vec<Duration> = (0..BOUNDS).map(|at| FIRST * (1 << at)).collect();
    let mut below = vec![0; bounds.len()];
    for (end, count) in wire.times.cumulative() {
        for (at, _) in bounds.iter().enumerate().filter(|(_, bound)| end <= **bound) {
            below[at] = below[at].max(count);
        }
    }
    let all = wire.times.count();
    let mut before = 0;
    let mut counts: Vec<String> = Vec::with_capacity(below.len() + 1);
    for count in below.into_iter().chain([all]) {
        counts.push(count.saturating_sub(before).to_string());
        before = before.max(count);
    }
    let bounds: Vec<f64> = bounds.iter().map(Duration::as_secs_f64).collect();
    json!({
        "count": all.to_string(), "sum": wire.total.as_secs_f64(), "bucketCounts": counts,
        "explicitBounds": bounds,
    })
}

fn scope() -> Value {
    json!({"name": "switchboard", "version": env!("CARGO_PKG_VERSION")})
}

fn resource(settings: &Settings) -> Value {
    let own = [text("service.name", &settings.service)];
    let more = settings.attributes.iter().map(|(name, value)| text(name, value));
    json!({"attributes": own.into_iter().chain(more).collect::<Vec<_>>()})
}

fn text(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

/// Converts a time to nanoseconds since 1970.
fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
