//! The table of bounds: a line for each workload and side, and the reason of each in a comment above it.

use super::count::{Costs, METRICS, Side};

/// Upper bounds for one side on a call of one workload.
#[derive(Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) workload: String,
    pub(super) side: Side,
    pub(super) most: Costs,
}

/// Reads the table.
///
/// # Errors
/// Names the invalid line and the reason.
pub(super) fn read(text: &str) -> Result<Vec<Bound>, String> {
    let mut bounds: Vec<Bound> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            continue;
        }
        let bound = bound(line).map_err(|error| format!("line {}: {error}", at + 1))?;
        if bounds.iter().any(|known| (&known.workload, known.side) == (&bound.workload, bound.side)) {
            return Err(format!("line {}: {} {} is there twice", at + 1, bound.workload, bound.side.name()));
        }
        bounds.push(bound);
    }
    if bounds.is_empty() { Err("there is no bound".to_owned()) } else { Ok(bounds) }
}

/// The workloads in the order of the table.
pub(super) fn workloads(bounds: &[Bound]) -> Vec<&str> {
    let mut names: Vec<&str> = bounds.iter().map(|bound| bound.workload.as_str()).collect();
    names.dedup();
    names
}

/// Returns whether a workload is one of messaging, whose program has more features.
pub(super) fn is_messaging(workload: &str) -> bool {
    ["bus-", "zmtp-"].iter().any(|prefix| workload.starts_with(prefix))
}

/// Returns whether a workload has a bound for this side. The peers of ZeroMQ are bare sockets of `gates`, which cost
/// what the program makes of them.
pub(super) fn has_side(workload: &str, side: Side) -> bool {
    !(side == Side::Client && workload.starts_with("zmtp-"))
}

fn bound(line: &str) -> Result<Bound, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [workload, side, numbers @ ..] = words.as_slice() else {
        return Err("a workload and a side are missing".to_owned());
    };
    let side = Side::named(side).ok_or_else(|| format!("{side:?} is none of client, server, process"))?;
    let mut most = Costs::default();
    if numbers.len() != METRICS.len() {
        return Err(format!(
            "{} numbers instead of {}: {}",
            numbers.len(),
            METRICS.len(),
            METRICS.join(", ")
        ));
    }
    for (number, most) in numbers.iter().zip(&mut most.0) {
        *most = number.parse().map_err(|error| format!("{number}: {error}"))?;
    }
    Ok(Bound { workload: (*workload).to_owned(), side, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounds_and_the_rest_is_comment() {
        let bounds = read("# why\n\na client 1 2 3.5 0\na server 1 2 3 4  # so\nb client 1 1 1 1\n").unwrap();
        assert_eq!(bounds.len(), 3);
        assert_eq!(bounds[0].most, Costs([1.0, 2.0, 3.5, 0.0]));
        assert_eq!((bounds[1].workload.as_str(), bounds[1].side), ("a", Side::Server));
        assert_eq!(workloads(&bounds), ["a", "b"]);
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        for (text, expected) in [
            ("# nothing", "there is no bound"),
            ("a", "line 1: a workload and a side are missing"),
            ("a both 1 2 3 4", "line 1: \"both\" is none of client, server, process"),
            ("\na client 1 2 3", "line 2: 3 numbers instead of 4: instructions, "),
            ("a client 1 2 3 x", "line 1: x: "),
            ("a client 1 2 3 4\na client 1 2 3 4", "line 2: a client is there twice"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
