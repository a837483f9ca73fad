//! Patterns of method names, with stars.

use crate::Error;
use switchboard_wire::{MethodId, MethodTable};

/// Returns whether `name` matches `pattern`, in which a star matches any characters, including slashes and
/// dots.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.as_bytes(), name.as_bytes());
    // Position to resume at when the star must match one more character.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => return true,
            (Some((b'*', rest)), _) => {
                again = Some((rest, name));
                pattern = rest;
            }
            (Some((wanted, rest)), Some((found, left))) if wanted == found => (pattern, name) = (rest, left),
            _ => match again {
                Some((rest, [_, left @ ..])) => {
                    again = Some((rest, left));
                    (pattern, name) = (rest, left);
                }
                _ => return false,
            },
        }
    }
}

/// Returns the methods that match a pattern; `*` alone also matches undeclared methods.
///
/// # Errors
/// Fails if no method matches; `setting` names the option in the error.
pub fn find(table: &MethodTable, pattern: &str, setting: &str) -> Result<Vec<MethodId>, Error> {
    let ids = (0..table.slots()).map(|at| MethodId(at as u16));
    let found: Vec<_> = ids.filter(|id| matches(pattern, &table.full_name(*id))).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let why = match pattern.contains('*') {
        true => format!("{pattern} matches no method; they are package.Service/Method"),
        false => table.unknown(pattern).message().to_owned(),
    };
    Err(Error::config(format!("{setting}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name) in [
            ("a.B/C", "a.B/C"),
            ("*", "a.B/C"),
            ("a.*", "a.B/C"),
            ("*/C", "a.B/C"),
            ("a.B/Get*", "a.B/GetAll"),
            ("a.*/Get*s", "a.B/Getss"),
            ("**", ""),
            ("*ab*ab", "abaab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a.B/C", "a.B/D"),
            ("", "a"),
            ("a", ""),
            ("a.B/", "a.B/C"),
            ("*/C", "a.B/CD"),
            ("*ab*ab", "abb"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
