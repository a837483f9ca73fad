//! Selects the calls that are printed: by the name of the method, and by their status.

use switchboard::{Code, guard::matches};

/// One `--tap-filter`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    /// Calls that end with this code.
    Code(Code),
    /// Calls that fail.
    Failed,
    /// Methods that match a pattern with stars.
    Method(String),
}

/// All filters. A call is printed if it matches any filter of each kind that is used.
#[derive(Debug)]
pub(super) struct Filter {
    methods: Vec<String>,
    statuses: Vec<Term>,
}

/// Reads a `--tap-filter`.
///
/// # Errors
/// An unknown code.
pub(super) fn parse(text: &str) -> Result<Term, String> {
    let Some(status) = text.strip_prefix("status=") else {
        return Ok(Term::Method(text.strip_prefix("method=").unwrap_or(text).to_owned()));
    };
    if status == "error" {
        return Ok(Term::Failed);
    }
    let codes = (0..=16).map(Code::from_number);
    let known = codes.clone().find(|code| code.name().eq_ignore_ascii_case(status));
    known.map(Term::Code).ok_or_else(|| {
        let names: Vec<_> = codes.map(Code::name).collect();
        format!("expected status=error or one of {}", names.join(", "))
    })
}

impl Filter {
    pub(super) fn new(terms: &[Term]) -> Filter {
        let mut filter = Filter { methods: Vec::new(), statuses: Vec::new() };
        for term in terms {
            match term {
                Term::Method(pattern) => filter.methods.push(pattern.clone()),
                status => filter.statuses.push(status.clone()),
            }
        }
        filter
    }

    pub(super) fn takes_method(&self, name: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|pattern| matches(pattern, name))
    }

    pub(super) fn takes_status(&self, code: Code) -> bool {
        self.statuses.is_empty()
            || self.statuses.iter().any(|term| match term {
                Term::Code(wanted) => *wanted == code,
                Term::Failed => code != Code::Ok,
                Term::Method(_) => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_one_kind_are_alternatives_and_kinds_are_combined() {
        let of =
            |texts: &[&str]| Filter::new(&texts.iter().map(|text| parse(text).unwrap()).collect::<Vec<_>>());
        assert!(of(&[]).takes_method("a.B/C") && of(&[]).takes_status(Code::Ok));
        let filter = of(&["a.*", "method=*/D", "status=not_found", "status=ok"]);
        assert!(
            filter.takes_method("a.B/C") && filter.takes_method("x.Y/D") && !filter.takes_method("x.Y/C")
        );
        assert!(filter.takes_status(Code::NotFound) && !filter.takes_status(Code::Internal));
        let failed = of(&["status=error"]);
        assert!(failed.takes_status(Code::Internal) && !failed.takes_status(Code::Ok));
        assert!(parse("status=lost").unwrap_err().contains("not_found"));
    }
}
