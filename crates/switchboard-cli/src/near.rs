//! The nearest known name to one that was mistyped.

/// Returns the most similar name, if it is similar enough. Case and an omitted package are ignored.
pub(crate) fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    let likeness = |name: &&str| {
        let name = name.to_lowercase();
        let short = name.rsplit('.').next().unwrap_or(&name);
        let typed_short = lower.rsplit('.').next().unwrap_or(&lower);
        let whole = strsim::jaro_winkler(&lower, &name);
        // The last part is more significant than a package that all names share.
        whole.max(if lower.contains('.') {
            (strsim::jaro_winkler(typed_short, short) + whole) / 2.0
        } else {
            strsim::jaro_winkler(&lower, short)
        })
    };
    let best = known.iter().map(|name| (likeness(name), *name)).max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 > 0.8).then_some(best.1)
}
