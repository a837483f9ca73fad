//! Plots: bars, and latency curves on logarithmic scales as inline SVG.
//!
//! Colours are classes (`s0` to `s7`, `floor`) that the page's style sheet fills in, so that one drawing serves a
//! light and a dark page.

use super::{html::escape, record::QUANTILES, report::duration};
use std::fmt::Write;

/// A bar: its label, its value in words, its length, and its class.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) text: String,
    pub(super) value: f64,
    pub(super) class: String,
}

/// Latencies at [`QUANTILES`], in microseconds, and the number of calls.
pub(super) struct Curve<'a> {
    pub(super) class: String,
    pub(super) calls: u64,
    pub(super) points: &'a [f64],
}

/// Draws horizontal bars that start at zero, so that lengths are proportional to values. Uses HTML instead of SVG,
/// whose text would shrink on a narrow screen.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut html = format!("<div class=\"bars\" role=\"img\" aria-label=\"{}\">\n", escape(title));
    for bar in bars {
        // The style sheet leaves room for the value next to the longest bar.
        let _ = writeln!(
            html,
            r#"<span>{label}</span><span class="bar"><i class="{class}" style="--share:{share:.4}"></i>{text}</span>"#,
            label = escape(&bar.label),
            class = escape(&bar.class),
            share = bar.value.max(0.0) / most,
            text = escape(&bar.text),
        );
    }
    html + "</div>\n"
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const HEIGHT: f64 = 380.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 12.0;

/// The ticks of the percentile axis.
const PERCENTILES: [(f64, &str); 7] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
];

/// Latency over percentile: each nine has the same width, each factor of ten the same height.
pub(super) fn curves(title: &str, curves: &[Curve<'_>]) -> String {
    let values = || curves.iter().flat_map(|curve| curve.points).copied().filter(|&us| us > 0.0);
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(f64::NEG_INFINITY, f64::max).log10().ceil();
    let (low, high) =
        if low.is_finite() && high.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) };
    let x = |quantile: f64| LEFT + nines(quantile) / nines(0.99999) * (WIDTH - LEFT - RIGHT);
    let y = |us: f64| {
        let share = (us.max(1e-3).log10() - low) / (high - low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    };

    let mut svg = open(title, HEIGHT);
    for (quantile, label) in PERCENTILES {
        let (x, bottom) = (x(quantile), HEIGHT - BOTTOM);
        let anchor = if quantile > 0.9999 { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            r#"<path class="grid" d="M{x:.1} {TOP:.0}V{bottom:.0}"/>
<text x="{x:.1}" y="{at:.0}" text-anchor="{anchor}">{label}</text>"#,
            at = bottom + 20.0
        );
    }
    for power in low as i32..=high as i32 {
        let us = 10_f64.powi(power);
        for step in 1..10 {
            let line = us * f64::from(step);
            if power < high as i32 || step == 1 {
                let class = if step == 1 { "grid" } else { "grid minor" };
                let _ = writeln!(
                    svg,
                    r#"<path class="{class}" d="M{LEFT:.0} {y:.1}H{end:.0}"/>"#,
                    y = y(line),
                    end = WIDTH - RIGHT
                );
            }
        }
        let _ = writeln!(
            svg,
            r#"<text x="{x:.0}" y="{y:.1}" text-anchor="end">{label}</text>"#,
            x = LEFT - 8.0,
            y = y(us) + 4.0,
            label = power_label(us)
        );
    }
    for curve in curves {
        // Percentiles need enough calls: the curve ends at the quantile above which less than one call remains.
        let known = |quantile: f64| (1.0 - quantile) * curve.calls as f64 >= 0.999;
        let points: Vec<String> = QUANTILES
            .iter()
            .zip(curve.points)
            .filter(|&(&quantile, &us)| us > 0.0 && known(quantile))
            .map(|(&quantile, &us)| format!("{:.1},{:.1}", x(quantile), y(us)))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline class="line {}" points="{}"/>"#,
            escape(&curve.class),
            points.join(" ")
        );
    }
    format!("<div class=\"wide\">\n{svg}</svg>\n</div>\n")
}

fn open(title: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n", escape(title))
}

/// Returns the number of nines of a quantile: 0.9 is 1, 0.99 is 2.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// A power of ten, without the decimals of a measurement.
fn power_label(us: f64) -> String {
    let text = duration(us);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_has_the_same_width() {
        assert!((nines(0.9) - 1.0).abs() < 1e-9);
        assert!((nines(0.999) - 3.0).abs() < 1e-9);
        assert_eq!(nines(0.0), 0.0);
    }

    #[test]
    fn powers_of_ten_have_no_decimals() {
        assert_eq!(
            [0.1, 1.0, 10.0, 100.0, 1e3, 1e6].map(power_label),
            ["0.1 us", "1 us", "10 us", "100 us", "1 ms", "1 s"]
        );
    }

    #[test]
    fn no_measurement_is_an_empty_plot() {
        let points = &[0.0; QUANTILES.len()];
        let svg = curves("none", &[Curve { class: "s0".to_owned(), calls: 0, points }]);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(bars("none", &[]).ends_with("</div>\n"));
    }

    #[test]
    fn a_curve_ends_where_no_call_is_left() {
        let points = |calls| {
            let curve = Curve { class: "s0".to_owned(), calls, points: &[5.0; QUANTILES.len()] };
            curves("some", &[curve]).split_once("points=").unwrap().1.matches(',').count()
        };
        // Up to 90 %, 99 % and all.
        assert_eq!([10, 100, 1_000_000].map(points), [6, 10, QUANTILES.len()]);
    }
}
