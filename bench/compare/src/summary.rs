//! A summary of the numbers in sentences.

use super::{
    judge::Verdict,
    result::{Numbers, Results},
    subject::{FLOOR, OURS, TOKIO},
};
use switchboard_cli::bench::report::{duration, thousands};

/// Returns the most important results as sentences.
pub(super) fn sentences(results: &[Results<'_>], verdicts: &[Verdict]) -> Vec<String> {
    let find = |id: &str| results.iter().find(|results| results.cell.id == id);
    let mut sentences = Vec::new();
    for (id, when) in [
        ("callers/1", "With one caller"),
        ("callers/100", "With 100 callers"),
        ("message/1000", "With 1000 callers and a message of 581 bytes, decoded and encoded on both sides,"),
        ("connection/pipelined", "On a single connection with 1000 calls under way"),
    ] {
        sentences.extend(find(id).and_then(|results| throughput(results, when)));
    }
    sentences.extend(find("callers/100").or_else(|| find("message/1000")).and_then(cpu));
    sentences.extend(find("message/5000").and_then(latency));
    sentences.extend(under_tokio(verdicts));
    sentences.extend(tally(verdicts));
    sentences
}

/// Formats a number as three digits and a unit, such as `1.2 M`.
pub(super) fn compact(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 999_500.0 => (value / 1e6, " M"),
        value if value >= 9_995.0 => (value / 1e3, " k"),
        _ => return thousands(value),
    };
    let digits = if value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    format!("{value:.digits$}{unit}")
}

/// Formats a factor, with its significant digits.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 9.95 => format!("{ratio:.0} times"),
        ratio if ratio >= 1.95 => format!("{ratio:.1} times"),
        _ => format!("{ratio:.2} times"),
    }
}

fn throughput(results: &Results<'_>, when: &str) -> Option<String> {
    let ours = results.of(OURS)?;
    let mut text = format!("{when} Switchboard answers {} requests a second", compact(ours.requests_per_s));
    let rate = |numbers: &Numbers| numbers.requests_per_s;
    if let Some((rival, numbers)) = results.rivals().next() {
        let ratio = times(rate(ours) / rate(numbers));
        text += &format!(
            ": {ratio} as many as the fastest rival, {} with {}",
            rival.name,
            compact(rate(numbers))
        );
    }
    if let Some(floor) = results.of(FLOOR) {
        text += &format!(", and {:.0} % of what the bare loop reaches", 100.0 * rate(ours) / rate(floor));
    }
    Some(text + ".")
}

fn cpu(results: &Results<'_>) -> Option<String> {
    let ours = results.of(OURS)?;
    let (rival, theirs) =
        results.rivals().min_by(|(_, one), (_, other)| one.cpu_us.total_cmp(&other.cpu_us))?;
    Some(format!(
        "A call costs both sides together {} of CPU time with {}; the most frugal rival, {}, needs {}.",
        duration(ours.cpu_us),
        results.cell.label,
        rival.name,
        duration(theirs.cpu_us)
    ))
}

fn latency(results: &Results<'_>) -> Option<String> {
    let ours = results.of(OURS)?;
    let (rival, theirs) =
        results.rivals().min_by(|(_, one), (_, other)| one.p99_us.total_cmp(&other.p99_us))?;
    Some(format!(
        "With {}, 99 of 100 calls are answered within {}; the best rival, {}, takes {}.",
        results.cell.label,
        duration(ours.p99_us),
        rival.name,
        duration(theirs.p99_us)
    ))
}

/// Under a plain tokio runtime, Switchboard is compared with rivals that run on such a runtime or on their own threads.
fn under_tokio(verdicts: &[Verdict]) -> Option<String> {
    let tested: Vec<&Verdict> =
        verdicts.iter().filter(|verdict| verdict.subject == TOKIO && verdict.met.is_some()).collect();
    let behind: Vec<&str> = tested
        .iter()
        .filter(|verdict| verdict.met == Some(false))
        .map(|verdict| verdict.cell.as_str())
        .collect();
    (!tested.is_empty()).then(|| {
        let (all, ahead) = (tested.len(), tested.len() - behind.len());
        let but = if behind.is_empty() { String::new() } else { format!(", not in {}", behind.join(", ")) };
        format!(
            "Under a plain multi-thread tokio runtime Switchboard is faster than every rival that has no runtime on each \
             thread in {ahead} of {all} cells of callers and message{but}."
        )
    })
}

fn tally(verdicts: &[Verdict]) -> Option<String> {
    let count = |met| verdicts.iter().filter(|verdict| verdict.met == met).count();
    let (met, missed, open) = (count(Some(true)), count(Some(false)), count(None));
    (met + missed > 0).then(|| {
        let mut text = format!("Of {} goals {met} are met and {missed} missed", met + missed);
        if open > 0 {
            text += &format!("; {open} more have no rival here to be measured against");
        }
        text + "."
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake, judge, result};

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [9_994.0, 12_340.0, 999_600.0, 1.5e7].map(compact),
            ["9 994", "12.3 k", "1.00 M", "15.0 M"]
        );
        assert_eq!([1.0, 2.04, 12.3].map(times), ["1.00 times", "2.0 times", "12 times"]);
    }

    #[test]
    fn the_summary_names_the_fastest_and_the_factor() {
        let raw = fake::raw(&[("grpc-go", 10_000.0, 9.0), ("tonic", 20_000.0, 3.0)], 1e6, 1.0);
        let results = result::results(&raw);
        let all = sentences(&results, &judge::judge(&results)).join("\n");
        assert!(
            all.contains(
                "With one caller Switchboard answers 1.00 M requests a second: 50 times as many as the fastest \
                 rival, tonic with 20.0 k, and 50 % of what the bare loop reaches."
            ),
            "{all}"
        );
        assert!(all.contains("the best rival, tonic, takes 3.00 us"), "{all}");
        assert!(all.contains("goals"), "{all}");
        assert!(all.contains("on each thread in 9 of 9 cells of callers and message."), "{all}");
    }

    #[test]
    fn no_measurement_gives_no_summary() {
        let mut raw = fake::raw(&[], 1.0, 1.0);
        raw.rows.clear();
        let results = result::results(&raw);
        assert_eq!(sentences(&results, &judge::judge(&results)), Vec::<String>::new());
    }
}
