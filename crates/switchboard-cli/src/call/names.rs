//! Names that users type, and the nearest ones that exist.

use crate::near::nearest;

/// Splits a method as the user typed it: `pkg.Service/Method`, `/pkg.Service/Method` or `pkg.Service.Method`.
pub(super) fn split_method(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('/').unwrap_or(text);
    text.split_once('/')
        .or_else(|| text.rsplit_once('.'))
        .filter(|(service, method)| !service.is_empty() && !method.is_empty() && !method.contains('/'))
        .ok_or_else(|| format!("{text:?} is not a method: expected pkg.Service/Method, `list` or `describe`"))
}

/// Returns the only name that ends in `.name`: users may omit the package if the rest is unique.
pub(super) fn only_with_suffix<'a>(known: impl IntoIterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let is_meant = |full: &&str| full.strip_suffix(name).is_some_and(|package| package.ends_with('.'));
    let mut same = known.into_iter().filter(is_meant);
    same.next().filter(|_| same.next().is_none())
}

/// Returns the index of the service that the user typed; the package may be omitted if the rest is unique.
pub(super) fn service_at(known: &[&str], typed: &str) -> Result<usize, String> {
    let full = only_with_suffix(known.iter().copied(), typed).unwrap_or(typed);
    let at = known.iter().position(|name| *name == full);
    at.ok_or_else(|| format!("unknown service {typed}{}", instead(typed, known.iter().copied())))
}

/// Returns the index of the method of a service that the user typed.
pub(super) fn method_at(service: &str, known: &[&str], typed: &str) -> Result<usize, String> {
    let at = known.iter().position(|name| *name == typed);
    at.ok_or_else(|| format!("unknown method {typed} of {service}{}", instead(typed, known.iter().copied())))
}

/// Returns `; did you mean X?`, or the available names when none is near.
pub(super) fn instead<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(typed, &known) {
        Some(near) => format!("; did you mean {near}?"),
        None if known.is_empty() => String::new(),
        None => {
            let shown = known.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = known.len().saturating_sub(SHOWN);
            format!(
                "; available: {shown}{}",
                if more > 0 { format!(" and {more} more") } else { String::new() }
            )
        }
    }
}

/// Names that are shown when none is near.
const SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_typed_in_three_ways() {
        for text in ["a.v1.B/C", "/a.v1.B/C", "a.v1.B.C"] {
            assert_eq!(split_method(text), Ok(("a.v1.B", "C")), "{text}");
        }
        for text in ["", "Greet", "a.B/", "/C", "a/b/c"] {
            assert!(split_method(text).unwrap_err().contains("expected pkg.Service/Method"), "{text}");
        }
    }

    #[test]
    fn packages_may_be_left_out_of_names_that_are_there_once() {
        let known = ["a.v1.Greeter", "b.Posts", "a.Posts", "Greeter"];
        assert_eq!(only_with_suffix(known, "Greeter"), Some("a.v1.Greeter"));
        assert_eq!(only_with_suffix(known, "v1.Greeter"), Some("a.v1.Greeter"));
        for name in ["Posts", "osts", "b.Posts"] {
            assert_eq!(only_with_suffix(known, name), None, "{name}");
        }
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_listed() {
        let services = ["demo.v1.Greeter", "demo.v1.Posts", "bench.v1.Bench"];
        for (typed, meant) in [
            ("demo.v1.Greter", "demo.v1.Greeter"),
            ("demo.Greeter", "demo.v1.Greeter"),
            ("greeter", "demo.v1.Greeter"),
            ("demo.v1.Post", "demo.v1.Posts"),
        ] {
            assert_eq!(instead(typed, services), format!("; did you mean {meant}?"), "{typed}");
        }
        assert_eq!(instead("zzz", ["Ada", "Bob"]), "; available: Ada, Bob");
        let many: Vec<_> = (0..10).map(|n| format!("M{n}")).collect();
        assert!(instead("zzz", many.iter().map(String::as_str)).ends_with("M7 and 2 more"));
    }
}
