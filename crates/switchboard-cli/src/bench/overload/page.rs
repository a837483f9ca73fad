//! The report as a page: replies and latency over the load. One file without external resources.

use super::result::{Report, times};
use crate::bench::{
    chart::{self, Bar},
    html::{self, escape, section, table},
    plot::{Axis, Line, lines},
    report::{duration, thousands},
};
use std::fmt::Write;

/// Returns the page of `report`, measured by `command_line`.
pub(super) fn render(report: &Report, command_line: &str) -> String {
    let server = format!(
        "{} calls at once, {} each: {} calls a second; callers wait for {}",
        report.units,
        duration(report.work_us),
        thousands(report.capacity_per_s),
        duration(report.deadline_ms * 1e3)
    );
    let mut page = html::head("overload");
    page += &html::facts(&report.machine, command_line, Some(&server));
    page += &verdicts(report);
    let goodput = |point: &super::result::Point| point.goodput_per_s;
    page += &over_load(report, "Calls answered in time, a second", goodput, thousands);
    page += &over_load(report, "p99 of the calls that were let in", |point| point.p99_us, duration);
    page += &tenants(report);
    page += &section("Numbers", &table(&report.rows()), "");
    page + html::END
}

fn verdicts(report: &Report) -> String {
    let mut list = "<ul>\n".to_owned();
    for verdict in &report.verdicts {
        let class = if verdict.holds { "" } else { " class=\"error\"" };
        let _ = writeln!(list, "<li{class}>{}</li>", escape(&verdict.text()));
    }
    list + "</ul>\n"
}

/// A line for each limit.
fn over_load(
    report: &Report,
    title: &str,
    value: impl Fn(&super::result::Point) -> f64,
    label: fn(f64) -> String,
) -> String {
    let mut limits: Vec<&'static str> = report.points.iter().map(|point| point.limit).collect();
    limits.dedup();
    let mut loads: Vec<f64> = report.points.iter().map(|point| point.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let of_limit = |(at, limit): (usize, &&'static str)| {
        let points = report.points.iter().filter(|point| point.limit == *limit);
        let points = points.map(|point| (point.load, value(point))).collect();
        Line { name: limit, class: format!("series s{at}"), points }
    };
    let drawn: Vec<_> = limits.iter().enumerate().map(of_limit).collect();
    let ticks = loads.into_iter().map(|load| (load, times(load))).collect();
    let axis = Axis { title: "calls that are due, in multiples of the capacity", ticks };
    section(title, &lines(title, &drawn, &axis, title, label), "")
}

fn tenants(report: &Report) -> String {
    if report.tenants.is_empty() {
        return String::new();
    }
    let title = "A well-behaved tenant: p99 of its calls";
    let bars = report.tenants.iter().enumerate().map(|(at, tenant)| Bar {
        label: tenant.company.to_owned(),
        text: format!(
            "{} ({} of {} answered in time)",
            duration(tenant.p99_us),
            thousands(tenant.goodput_per_s),
            thousands(tenant.offered_per_s)
        ),
        value: tenant.p99_us,
        class: format!("s{at}"),
    });
    let bars: Vec<_> = bars.collect();
    section(title, &chart::bars(title, &bars), &table(&report.tenant_rows()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::overload::result::tests::example;

    #[test]
    fn the_page_is_self_contained() {
        let page = render(&example(), "switchboard bench overload --html <x>");
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<polyline").count(), 4);
        assert_eq!(page.matches("--share:").count(), 3);
        assert!(page.contains("--html &lt;x&gt;") && page.contains("limit auto"));
        for foreign in ["<script", "src=", "href=", "url(", "http"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
