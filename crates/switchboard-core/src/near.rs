//! The nearest known name to one that was mistyped.

/// Most letters that a name may differ in to be suggested.
const LETTERS_MAX: usize = 3;

/// Letters of a name that are compared; longer names are far from all known ones.
const COMPARED_MAX: usize = 64;

/// Returns the known name that differs least from `name`, if it differs in at most half of the letters and in no more
/// than three.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max = LETTERS_MAX.min(name.len() / 2);
    let name: String = name.chars().take(COMPARED_MAX).collect();
    let near = known.into_iter().map(|known| (strsim::levenshtein(&name, known), known)).min()?;
    (near.0 <= max).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["p2c", "round_robin", "sticky"];
        assert_eq!(nearest("roundrobin", known), Some("round_robin"));
        assert_eq!(nearest("p2", known), Some("p2c"));
        assert_eq!(nearest("stick", known), Some("sticky"));
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("random", known), None);
        assert_eq!(nearest(&"sticky".repeat(50), known), None);
        assert_eq!(nearest("p2c", []), None);
    }
}
