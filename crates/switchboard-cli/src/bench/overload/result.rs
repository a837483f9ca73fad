//! The results: a point for each load and limit, the tenants, and the comparison with the goals.

use super::{load::Outcome, options::OverloadArgs};
use crate::{
    bench::{
        machine::Machine,
        report::{Rows, align, duration, thousands},
    },
    terminal::{Style, Terminal},
};
use serde::Serialize;

/// The complete report, as in the JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    name: &'static str,
    /// Calls a second that the backend can do.
    pub(super) capacity_per_s: f64,
    pub(super) units: u32,
    pub(super) work_us: f64,
    pub(super) deadline_ms: f64,
    pub(super) points: Vec<Point>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) machine: Machine,
}

/// One load under one limit.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) limit: &'static str,
    /// Multiple of the capacity.
    pub(super) load: f64,
    pub(super) offered_per_s: f64,
    /// Calls with a reply in time.
    pub(super) goodput_per_s: f64,
    pub(super) refused_per_s: f64,
    /// Admitted calls without a reply by the deadline.
    pub(super) late_per_s: f64,
    /// Calls that the load generator did not send, because too many were in flight.
    pub(super) unsent_per_s: f64,
    /// Median latency of admitted calls, late ones included.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

/// A well-behaved tenant, alone or alongside others.
#[derive(Debug, Serialize)]
pub(super) struct Tenant {
    pub(super) company: &'static str,
    pub(super) offered_per_s: f64,
    pub(super) goodput_per_s: f64,
    pub(super) refused_per_s: f64,
    pub(super) late_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

/// A goal for a server under overload, and its result.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) what: String,
    /// `None` if no call was admitted; then the goal is missed.
    pub(super) value: Option<f64>,
    pub(super) bar: f64,
    pub(super) holds: bool,
}

/// Least ratio of the goodput at the highest load to the peak.
const GOODPUT_BAR: f64 = 0.9;
/// Largest ratio of a well-behaved tenant's p99 alongside a greedy one to that alone.
const TENANT_BAR: f64 = 2.0;

impl Point {
    pub(super) fn new(limit: &'static str, load: f64, outcome: &Outcome) -> Self {
        let seconds = outcome.measured.elapsed.as_secs_f64().max(1e-9);
        let rate = |count: u64| (count as f64 / seconds).round();
        Self {
            limit,
            load,
            offered_per_s: rate(outcome.offered),
            goodput_per_s: rate(outcome.measured.requests),
            refused_per_s: rate(outcome.refused),
            late_per_s: rate(outcome.late),
            unsent_per_s: rate(outcome.unsent),
            p50_us: outcome.measured.latency_us(0.5),
            p99_us: outcome.measured.latency_us(0.99),
            errors: outcome.measured.errors,
            first_error: outcome.measured.first_error.clone(),
        }
    }
}

impl Tenant {
    pub(super) fn new(company: &'static str, outcome: &Outcome) -> Self {
        let point = Point::new("", 0.0, outcome);
        Self {
            company,
            offered_per_s: point.offered_per_s,
            goodput_per_s: point.goodput_per_s,
            refused_per_s: point.refused_per_s,
            late_per_s: point.late_per_s,
            p50_us: point.p50_us,
            p99_us: point.p99_us,
            errors: point.errors,
            first_error: point.first_error,
        }
    }
}

impl Report {
    pub(super) fn new(
        args: &OverloadArgs,
        points: Vec<Point>,
        tenants: Vec<Tenant>,
        machine: Machine,
    ) -> Self {
        let verdicts = verdicts(&points, &tenants);
        Self {
            name: "overload",
            capacity_per_s: args.backend.capacity(),
            units: args.backend.units,
            work_us: args.backend.work().as_secs_f64() * 1e6,
            deadline_ms: args.deadline().as_secs_f64() * 1e3,
            points,
            tenants,
            verdicts,
            machine,
        }
    }

    /// Returns the JSON with a line feed at the end.
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has no maps") + "\n"
    }

    /// Returns the report for people.
    pub(super) fn text(&self, terminal: Terminal) -> String {
        let machine = &self.machine;
        let head = format!(
            "overload: {}, {} cores, Linux {}, switchboard {}",
            machine.cpu, machine.cores, machine.kernel, machine.version
        );
        let mut text = terminal.paragraph(Style::Plain, &head);
        text.push('\n');
        text += &align(&self.rows(), terminal);
        text.push('\n');
        if !self.tenants.is_empty() {
            text += &align(&self.tenant_rows(), terminal);
            text.push('\n');
        }
        for verdict in &self.verdicts {
            let style = if verdict.holds { Style::Plain } else { Style::Failure };
            text += &terminal.paragraph(style, &verdict.text());
        }
        text
    }

    /// Returns the measurements of each load, with a heading.
    pub(super) fn rows(&self) -> Rows {
        let head = ["limit", "load", "offered/s", "goodput/s", "refused/s", "late/s", "p50", "p99"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for point in &self.points {
            rows.push(vec![
                point.limit.to_owned(),
                times(point.load),
                thousands(point.offered_per_s),
                thousands(point.goodput_per_s),
                thousands(point.refused_per_s),
                thousands(point.late_per_s + point.unsent_per_s),
                duration(point.p50_us),
                duration(point.p99_us),
            ]);
        }
        rows
    }

    /// Returns the tenants, with a heading.
    pub(super) fn tenant_rows(&self) -> Rows {
        let head =
            ["a well-behaved tenant", "", "offered/s", "goodput/s", "refused/s", "late/s", "p50", "p99"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for tenant in &self.tenants {
            rows.push(vec![
                tenant.company.to_owned(),
                String::new(),
                thousands(tenant.offered_per_s),
                thousands(tenant.goodput_per_s),
                thousands(tenant.refused_per_s),
                thousands(tenant.late_per_s),
                duration(tenant.p50_us),
                duration(tenant.p99_us),
            ]);
        }
        rows
    }

    /// Returns the calls that failed for reasons other than overload.
    pub(super) fn errors(&self) -> Option<String> {
        let points = self.points.iter().map(|point| (point.errors, &point.first_error));
        let all = points.chain(self.tenants.iter().map(|tenant| (tenant.errors, &tenant.first_error)));
        let (mut count, mut first) = (0, None);
        for (errors, error) in all {
            count += errors;
            first = first.or(error.as_deref());
        }
        (count > 0).then(|| format!("{count} calls failed, the first: {}", first.unwrap_or_default()))
    }
}

impl Verdict {
    pub(super) fn text(&self) -> String {
        let word = if self.holds { "holds" } else { "MISSED" };
        let value = self.value.map_or("no call was let in".to_owned(), |value| format!("{value:.2}"));
        format!("{}: {value}, the bar is {} — {word}", self.what, self.bar)
    }
}

/// Formats a multiple of the capacity.
pub(super) fn times(load: f64) -> String {
    format!("{load}×")
}

fn verdicts(points: &[Point], tenants: &[Tenant]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut limits: Vec<&str> =
        points.iter().map(|point| point.limit).filter(|limit| *limit != "off").collect();
    limits.dedup();
    for limit in limits {
        let of_limit = || points.iter().filter(|point| point.limit == limit);
        let peak = of_limit().map(|point| point.goodput_per_s).fold(0.0, f64::max);
        if let Some(most) = of_limit().max_by(|one, other| one.load.total_cmp(&other.load)) {
            let value = (peak > 0.0).then(|| most.goodput_per_s / peak);
            let what = format!("goodput at {} the capacity over the peak, limit {limit}", times(most.load));
            let holds = value.is_some_and(|value| value >= GOODPUT_BAR);
            verdicts.push(Verdict { what, value, bar: GOODPUT_BAR, holds });
        }
    }
    if let [alone, .., beside] = tenants {
        let value = [alone, beside].iter().all(|tenant| tenant.p99_us > 0.0);
        let value = value.then(|| beside.p99_us / alone.p99_us);
        let what = "p99 of a well-behaved tenant beside a greedy one, over that alone".to_owned();
        let holds = value.is_some_and(|value| value <= TENANT_BAR);
        verdicts.push(Verdict { what, value, bar: TENANT_BAR, holds });
    }
    verdicts
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::measure::Measured;
    use std::time::Duration;

    fn outcome(good: u64, refused: u64, us: u64) -> Outcome {
        let mut measured = Measured::new();
        (0..good).for_each(|_| measured.record(Duration::from_micros(us)));
        measured.elapsed = Duration::from_secs(1);
        Outcome { measured, offered: good + refused, refused, late: 0, unsent: 0 }
    }

    /// A report of two loads under two limits, and three tenants.
    pub(in crate::bench::overload) fn example() -> Report {
        let points = vec![
            Point::new("off", 1.0, &outcome(100, 0, 5000)),
            Point::new("off", 10.0, &outcome(3, 0, 5000)),
            Point::new("auto", 1.0, &outcome(100, 0, 5000)),
            Point::new("auto", 10.0, &outcome(95, 905, 6000)),
        ];
        let companies = [("alone", 5000), ("beside, limit", 5000), ("beside, fair", 12_000)];
        let tenants: Vec<_> = companies.map(|(who, us)| Tenant::new(who, &outcome(10, 0, us))).into();
        let verdicts = verdicts(&points, &tenants);
        Report {
            name: "overload",
            capacity_per_s: 100.0,
            units: 40,
            work_us: 5000.0,
            deadline_ms: 100.0,
            points,
            tenants,
            verdicts,
            machine: Machine::here(),
        }
    }

    #[test]
    fn goals_apply_to_the_highest_load_and_the_last_tenant() {
        let report = example();
        let held: Vec<_> = report.verdicts.iter().map(|verdict| verdict.holds).collect();
        assert_eq!(held, [true, false], "{:?}", report.verdicts);
        assert!((report.verdicts[0].value.unwrap() - 0.95).abs() < 1e-9);
        let text = report.text(Terminal::PLAIN);
        assert!(
            text.contains("auto   10×") && text.contains("limit auto: 0.95, the bar is 0.9 — holds"),
            "{text}"
        );
        assert!(text.contains("beside a greedy one, over that alone: 2.40, the bar is 2 — MISSED"), "{text}");
        assert_eq!(report.errors(), None);
    }

    #[test]
    fn goals_are_missed_if_no_call_is_admitted() {
        let points =
            [Point::new("auto", 1.0, &outcome(0, 10, 0)), Point::new("auto", 3.0, &outcome(0, 30, 0))];
        let tenants = [10, 0].map(|good| Tenant::new("alone", &outcome(good, 1, 5000)));
        let verdicts = verdicts(&points, &tenants);
        assert_eq!(verdicts.iter().map(|verdict| verdict.holds).collect::<Vec<_>>(), [false, false]);
        let text = verdicts[1].text();
        assert!(text.ends_with("over that alone: no call was let in, the bar is 2 — MISSED"), "{text}");
    }

    #[test]
    fn programs_get_every_number() {
        let json: serde_json::Value = serde_json::from_str(&example().json()).unwrap();
        assert_eq!(json["points"][3]["goodput_per_s"], 95.0);
        assert_eq!(json["points"][3]["refused_per_s"], 905.0);
        assert_eq!(json["verdicts"][0]["holds"], true);
        assert!(json["tenants"][2]["p99_us"].as_f64().unwrap() > 11_000.0);
        assert!(json["machine"]["cpu"].is_string());
    }
}
