//! The counters as text for Prometheus: the exposition format 0.0.4, and OpenMetrics 1.0.
//!
//! Names follow the glossary. Counters that cannot change are omitted: a method appears with the first call
//! on a wire.

use super::{MethodStats, ServerStats, SourceStats, TlsStats, WireStats};
use crate::{MemoryStats, counters::Counter};
use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
};
use switchboard_wire::Code;

/// Histogram bounds for Prometheus: every power of two of 1.024 us; the last bucket ends at 69 s.
const BOUND_NS: u128 = 1024;

impl ServerStats {
    /// Returns all counters in the Prometheus text format 0.0.4 (`text/plain; version=0.0.4`).
    pub fn prometheus(&self) -> String {
        self.expose(false)
    }

    /// Returns all counters in the OpenMetrics 1.0 format (`application/openmetrics-text; version=1.0.0`).
    pub fn open_metrics(&self) -> String {
        self.expose(true)
    }

    fn expose(&self, is_open: bool) -> String {
        let mut text = Text { text: String::with_capacity(16 << 10), is_open };
        text.gauge("switchboard_uptime_seconds", "time since the server started");
        text.sample("switchboard_uptime_seconds", &[], self.uptime.as_secs_f64());
        text.connections(self);
        text.memory(&self.memory);
        text.tls(&self.tls);
        text.calls(&self.methods);
        text.sources(&self.sources);
        if is_open {
            text.text.push_str("# EOF\n");
        }
        text.text
    }
}

struct Text {
    text: String,
    is_open: bool,
}

impl Text {
    fn connections(&mut self, stats: &ServerStats) {
        self.plain_counter("switchboard_accepted", "connections accepted", stats.accepted);
        let what = "connections closed because their first bytes match no enabled protocol";
        self.plain_counter("switchboard_unknown_protocol", what, stats.unknown_protocol);
        let what = "connections closed because their wire is not enabled";
        self.plain_counter("switchboard_disabled_wires", what, stats.disabled_wires);
        let what = "connections closed because their peer violated the protocol";
        self.plain_counter("switchboard_protocol_errors", what, stats.protocol_errors);
        self.gauge("switchboard_connections_open", "connections open now, by what they speak");
        for protocol in &stats.protocols {
            self.sample("switchboard_connections_open", &[("protocol", protocol.protocol)], protocol.open);
        }
        self.counter("switchboard_connections", "connections opened, by what they speak");
        for protocol in &stats.protocols {
            let labels = [("protocol", protocol.protocol)];
            self.sample("switchboard_connections_total", &labels, protocol.connections);
        }
        self.counter("switchboard_received_bytes", "bytes read from connections, inside TLS");
        for protocol in &stats.protocols {
            let labels = [("protocol", protocol.protocol)];
            self.sample("switchboard_received_bytes_total", &labels, protocol.received);
        }
        self.counter("switchboard_sent_bytes", "bytes written to connections, inside TLS");
        for protocol in &stats.protocols {
            self.sample("switchboard_sent_bytes_total", &[("protocol", protocol.protocol)], protocol.sent);
        }
    }

    fn memory(&mut self, memory: &MemoryStats) {
        let gauges = [
            ("switchboard_memory_held_bytes", "bytes that the server holds for its peers", memory.held),
            ("switchboard_memory_max_bytes", "most of them (memory_bytes_max); 0: no limit", memory.max),
            ("switchboard_memory_paused", "connections not read because they hold much", memory.paused),
        ];
        for (name, help, value) in gauges {
            self.gauge(name, help);
            self.sample(name, &[], value);
        }
        let what = "times that a connection stopped being read because it held much";
        self.plain_counter("switchboard_memory_pauses", what, memory.pauses);
        self.plain_counter(
            "switchboard_memory_refused",
            "calls rejected because memory was short",
            memory.refused,
        );
        let what = "replies dropped because memory was short";
        self.plain_counter("switchboard_memory_dropped", what, memory.dropped);
        let what = "connections closed in the middle of a large message";
        self.plain_counter("switchboard_memory_aborted", what, memory.aborted);
    }

    fn tls(&mut self, tls: &TlsStats) {
        self.plain_counter("switchboard_tls_handshakes", "handshakes that succeeded", tls.handshakes);
        self.plain_counter("switchboard_tls_failures", "handshakes that failed", tls.failures);
        let what = "TLS connections to plaintext listeners, and plaintext connections where TLS is required";
        self.plain_counter("switchboard_tls_mismatches", what, tls.mismatches);
        self.plain_counter("switchboard_tls_reloads", "changed certificates that came into use", tls.reloads);
        let what = "changes of certificates that could not be used";
        self.plain_counter("switchboard_tls_reload_failures", what, tls.reload_failures);
        if tls.certificates.is_empty() {
            return;
        }
        self.gauge("switchboard_tls_certificate_expires_seconds", "time until a certificate expires");
        for certificate in &tls.certificates {
            let labels = [("file", &*certificate.file), ("subject", &*certificate.subject)];
            let name = "switchboard_tls_certificate_expires_seconds";
            self.sample(name, &labels, certificate.expires_in_seconds);
        }
    }

    fn calls(&mut self, methods: &[MethodStats]) {
        self.counter("switchboard_calls", "calls that ended");
        for_each(methods, |labels, wire| {
            for (number, count) in wire.ended.iter().enumerate().filter(|(_, count)| **count > 0) {
                let [service, method, name] = labels;
                let code = ("code", Code::from_number(number as u16).name());
                self.sample("switchboard_calls_total", &[service, method, name, code], *count);
            }
        });
        self.gauge("switchboard_calls_in_flight", "calls that wait in handlers");
        for_each(methods, |labels, wire| {
            self.sample("switchboard_calls_in_flight", &labels, wire.in_flight);
        });
        self.counter("switchboard_call_received_bytes", "bytes of request messages of calls that ended");
        for_each(methods, |labels, wire| {
            self.sample("switchboard_call_received_bytes_total", &labels, wire.received);
        });
        self.counter("switchboard_call_sent_bytes", "bytes of reply messages of calls that ended");
        for_each(methods, |labels, wire| {
            self.sample("switchboard_call_sent_bytes_total", &labels, wire.sent);
        });
        self.family("switchboard_call_seconds", "time from the arrival of a call to its end", "histogram");
        for_each(methods, |labels, wire| self.histogram(labels, wire));
        self.counter("switchboard_slow_turns", "handlers that held their connection's turn over 10 ms");
        for method in methods {
            let (service, name) = split(&method.name);
            let labels = [("service", service), ("method", name)];
            self.sample("switchboard_slow_turns_total", &labels, method.slow_turns);
        }
    }

    /// Writes the counters of sources. A family is written once, with the samples of all sources of a kind.
    fn sources(&mut self, sources: &[SourceStats]) {
        let mut families: BTreeMap<(&str, &str), Vec<(&str, &Counter)>> = BTreeMap::new();
        for source in sources {
            for counter in &source.counters {
                families.entry((source.kind, counter.name)).or_default().push((&source.name, counter));
            }
        }
        for ((kind, name), samples) in families {
            let Some((_, Counter { help, is_total, .. })) = samples.first() else { continue };
            let mut name = format!("switchboard_{kind}_{name}");
            if *is_total {
                self.counter(&name, help);
                name.push_str("_total");
            } else {
                self.gauge(&name, help);
            }
            for (source, counter) in samples {
                let labels = [Some(("source", source)), counter.label];
                let labels: Vec<_> = labels.into_iter().flatten().collect();
                self.sample(&name, &labels, counter.value);
            }
        }
    }

    fn histogram(&mut self, [service, method, name]: [(&str, &str); 3], wire: &WireStats) {
        const BUCKET: &str = "switchboard_call_seconds_bucket";
        for (bound, count) in wire.times.cumulative() {
            let units = bound.as_nanos() / BOUND_NS;
            if bound.as_nanos().is_multiple_of(BOUND_NS) && units.is_power_of_two() {
                let bound = bound.as_secs_f64().to_string();
                self.sample(BUCKET, &[service, method, name, ("le", &bound)], count);
            }
        }
        let count = wire.times.count();
        self.sample(BUCKET, &[service, method, name, ("le", "+Inf")], count);
        let labels = [service, method, name];
        self.sample("switchboard_call_seconds_sum", &labels, wire.total.as_secs_f64());
        self.sample("switchboard_call_seconds_count", &labels, count);
    }

    fn plain_counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help);
        self.sample(&format!("{name}_total"), &[], value);
    }

    /// Only OpenMetrics omits the suffix in the name of a counter family.
    fn counter(&mut self, name: &str, help: &str) {
        match self.is_open {
            true => self.family(name, help, "counter"),
            false => self.family(&format!("{name}_total"), help, "counter"),
        }
    }

    fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, help, "gauge");
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string never fails, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            for character in value.chars() {
                match character {
                    '\\' | '"' => self.text.extend(['\\', character]),
                    '\n' => self.text.push_str("\\n"),
                    _ => self.text.push(character),
                }
            }
            self.text.push('"');
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// Calls `each` for every method on every wire with calls, with its labels.
fn for_each(methods: &[MethodStats], mut each: impl FnMut([(&str, &str); 3], &WireStats)) {
    for method in methods {
        let (service, name) = split(&method.name);
        for wire in &method.wires {
            each([("service", service), ("method", name), ("wire", wire.wire)], wire);
        }
    }
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}
