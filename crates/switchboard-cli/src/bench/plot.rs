//! Line charts on logarithmic scales, with the name of each line at its end.

use super::html::escape;
use std::fmt::Write;

/// A line: its name, its class in the style sheet, and its points.
pub struct Line<'a> {
    pub name: &'a str,
    pub class: String,
    pub points: Vec<(f64, f64)>,
}

/// An axis: the positions of its ticks, and their labels.
pub struct Axis {
    pub title: &'static str,
    pub ticks: Vec<(f64, String)>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
/// Room for names at the ends of lines.
const RIGHT: f64 = 190.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 46.0;
/// Least distance between names.
const NAME_HEIGHT: f64 = 15.0;

/// Draws `lines` over `axis`; `label` formats their values.
pub fn lines(
    title: &str,
    lines: &[Line<'_>],
    axis: &Axis,
    y_title: &str,
    label: fn(f64) -> String,
) -> String {
    let values =
        || lines.iter().flat_map(|line| &line.points).map(|&(_, value)| value).filter(|&value| value > 0.0);
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    let ends = axis.ticks.first().zip(axis.ticks.last());
    let Some(((first, _), (last, _))) = ends.filter(|_| high > 0.0) else { return String::new() };
    let scale = Scale::new(low, high);
    let x = |value: f64| LEFT + (value / first).ln() / (last / first).ln().max(1e-9) * (WIDTH - LEFT - RIGHT);

    let mut svg = format!(
        "<div class=\"wide\">\n<svg viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"{}\">\n",
        escape(title)
    );
    for (value, name) in &axis.ticks {
        put_column(&mut svg, x(*value), name);
    }
    for (value, strong) in scale.ticks() {
        put_row(&mut svg, scale.y(value), strong.then(|| label(value)));
    }
    put_titles(&mut svg, y_title, axis.title);
    let place = |&(at, value): &(f64, f64)| (x(at), scale.y(value));
    // Later lines are drawn on top: Switchboard last.
    for line in lines.iter().rev().filter(|line| !line.points.is_empty()) {
        put_line(&mut svg, &line.class, &line.points.iter().map(place).collect::<Vec<_>>());
    }
    let ends = lines.iter().filter_map(|line| line.points.last().map(|last| (line, place(last))));
    put_names(&mut svg, &ends.collect::<Vec<_>>());
    svg + "</svg>\n</div>\n"
}

/// Draws a vertical line of the grid and its name below.
fn put_column(svg: &mut String, x: f64, name: &str) {
    let bottom = HEIGHT - BOTTOM;
    let _ = writeln!(
        svg,
        r#"<path class="grid minor" d="M{x:.1} {TOP:.0}V{bottom:.0}"/>
<text x="{x:.1}" y="{y:.0}" text-anchor="middle">{name}</text>"#,
        y = bottom + 18.0,
        name = escape(name)
    );
}

/// Draws a horizontal line of the grid; those with a name are strong.
fn put_row(svg: &mut String, y: f64, name: Option<String>) {
    let class = if name.is_some() { "grid" } else { "grid minor" };
    let _ = writeln!(svg, r#"<path class="{class}" d="M{LEFT:.0} {y:.1}H{:.0}"/>"#, WIDTH - RIGHT);
    if let Some(name) = name {
        let _ = writeln!(
            svg,
            r#"<text x="{:.0}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            y + 4.0,
            escape(&name)
        );
    }
}

fn put_titles(svg: &mut String, y_title: &str, x_title: &str) {
    let _ = writeln!(
        svg,
        r#"<text class="axis" x="0" y="12">{}</text>
<text class="axis" x="{:.0}" y="{:.0}" text-anchor="middle">{}</text>"#,
        escape(y_title),
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        escape(x_title)
    );
}

fn put_line(svg: &mut String, class: &str, points: &[(f64, f64)]) {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(svg, r#"<g class="{}"><polyline points="{}"/>"#, escape(class), path.join(" "));
    for (x, y) in points {
        let _ = write!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="2.6"/>"#);
    }
    *svg += "</g>\n";
}

/// Draws the names of lines beside their last points, far enough apart to be read.
fn put_names(svg: &mut String, ends: &[(&Line<'_>, (f64, f64))]) {
    let places = spread(&ends.iter().map(|(_, (_, y))| *y).collect::<Vec<_>>(), TOP, HEIGHT - BOTTOM);
    let start = WIDTH - RIGHT + 14.0;
    for ((line, (x, y)), place) in ends.iter().zip(places) {
        let _ = writeln!(
            svg,
            r#"<g class="{class}"><path class="lead" d="M{from:.1} {y:.1}L{start:.1} {place:.1}"/>
<text class="name" x="{at:.1}" y="{text:.1}">{name}</text></g>"#,
            class = escape(&line.class),
            from = x + 4.0,
            at = start + 3.0,
            text = place + 4.0,
            name = escape(line.name)
        );
    }
}

/// A logarithmic scale with round numbers at its ends.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn new(low: f64, high: f64) -> Self {
        let steps = |value: f64| [1.0, 2.0, 5.0, 10.0].map(|step| step * 10_f64.powf(value.log10().floor()));
        let under = steps(low).into_iter().filter(|&step| step <= low * 1.0001).fold(0.0, f64::max);
        let over = steps(high).into_iter().find(|&step| step >= high * 0.9999).unwrap_or(high);
        Self { low: under, high: if over > under { over } else { under * 10.0 } }
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    /// Returns ones, twos and fives between the ends, and whether each has a label.
    fn ticks(&self) -> Vec<(f64, bool)> {
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        // If there are few powers of ten, the steps between have labels too.
        let all = (self.high / self.low).log10() < 2.5;
        powers
            .flat_map(|power| [1.0, 2.0, 5.0].map(|step| (step * 10_f64.powi(power), step == 1.0 || all)))
            .filter(|&(value, _)| value >= self.low * 0.999 && value <= self.high * 1.001)
            .collect()
    }
}

/// Spreads the `wanted` positions so that names do not overlap and stay between `top` and `bottom`.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    let mut places = wanted.to_vec();
    let mut least = top;
    for &at in &order {
        places[at] = places[at].max(least);
        least = places[at] + NAME_HEIGHT;
    }
    let mut most = bottom;
    for &at in order.iter().rev() {
        places[at] = places[at].min(most);
        most = places[at] - NAME_HEIGHT;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_their_order() {
        let places = spread(&[100.0, 101.0, 390.0, 20.0], 10.0, 354.0);
        assert_eq!(places, [100.0, 115.0, 354.0, 20.0]);
        let crowded = spread(&[350.0, 351.0, 352.0], 0.0, 354.0);
        assert_eq!(crowded, [324.0, 339.0, 354.0]);
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let scale = Scale::new(230.0, 41_000.0);
        assert_eq!((scale.low, scale.high), (200.0, 50_000.0));
        assert!(scale.ticks().contains(&(1000.0, true)));
        assert!((scale.y(200.0) - (HEIGHT - BOTTOM)).abs() < 1e-9 && (scale.y(5e4) - TOP).abs() < 1e-9);
        let flat = Scale::new(7.0, 7.0);
        assert!(flat.high > flat.low);
    }

    #[test]
    fn no_measurement_draws_nothing() {
        let axis = Axis { title: "x", ticks: vec![(1.0, "1".to_owned()), (10.0, "10".to_owned())] };
        let none = Line { name: "a", class: "c0".to_owned(), points: Vec::new() };
        assert_eq!(lines("t", &[none], &axis, "y", |value| value.to_string()), "");
        let one = Line { name: "<a>", class: "c0".to_owned(), points: vec![(1.0, 5.0), (10.0, 50.0)] };
        let svg = lines("t", &[one], &axis, "y", |value| value.to_string());
        assert!(svg.contains("&lt;a&gt;") && svg.contains("<polyline") && !svg.contains("NaN"), "{svg}");
    }
}
