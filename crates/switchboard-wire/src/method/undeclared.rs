//! Methods that no service declares, and the names of them that a server accepts.
//!
//! The server stores nothing for them beyond their calls, so callers cannot exhaust its memory: each call carries the
//! name, in [`Head::undeclared_name`](crate::wire::Head::undeclared_name), and is counted under `*`.

use super::{Found, Kind, MethodId, MethodInfo, MethodTable, Params, ServiceInfo, UndeclaredName};
use crate::Status;

/// Longest method name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Methods that represent all undeclared ones: one with a single message in each direction, one of unknown kind.
pub(super) static UNDECLARED: ServiceInfo = ServiceInfo {
    name: "*",
    methods: &[
        MethodInfo::new("*", Kind::Unary).params(Params::AsSent),
        MethodInfo::new("*", Kind::Bidi).params(Params::AsSent),
    ],
    descriptor: &[],
};

#[derive(Debug)]
pub(super) struct UndeclaredNames {
    /// Accepted services; all services if empty.
    services: Vec<Box<str>>,
}

impl UndeclaredNames {
    pub(super) fn new(services: Vec<Box<str>>) -> UndeclaredNames {
        UndeclaredNames { services }
    }

    /// Returns true if `path` is the name of a method, `package.Service/Method`, of an accepted service.
    pub(super) fn accepts(&self, path: &str) -> bool {
        let is_name = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        };
        let is_taken =
            |service: &str| self.services.is_empty() || self.services.iter().any(|known| **known == *service);
        path.len() <= NAME_BYTES_MAX
            && path
                .split_once('/')
                .is_some_and(|(service, method)| is_name(service) && is_name(method) && is_taken(service))
    }
}

impl MethodTable {
    /// Refuses the unknown method `name`: with the method to call instead if calls of unknown methods
    /// [pass the guards](Self::guard_unknown), whose result is `status`.
    ///
    /// # Errors
    /// Returns `status` if they do not.
    #[cold]
    pub fn refuse(&self, name: &str, kind: Kind, status: Status) -> Result<Found, Status> {
        if !self.guards_unknown {
            return Err(status);
        }
        let of_kind = if kind == Kind::Unary { 3 } else { 4 };
        let method = MethodId(self.entries.len() as u16 + of_kind);
        Ok(Found { method, undeclared_name: Some(UndeclaredName::refused(name, status)) })
    }

    /// Refuses a call of the method `found`, whose request has a fault: with the method to call instead if calls of
    /// unknown methods [pass the guards](Self::guard_unknown), so that callers without credentials get the same status
    /// for every name. An unknown method keeps its own status.
    ///
    /// # Errors
    /// Returns `status` if they do not.
    #[cold]
    pub fn refuse_call(&self, found: &Found, kind: Kind, status: Status) -> Result<Found, Status> {
        match &found.undeclared_name {
            Some(name) if name.refusal().is_some() => Ok(found.clone()),
            Some(name) => self.refuse(name, kind, status),
            None => self.refuse(&self.full_name(found.method), kind, status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_not_accepted() {
        let undeclared = UndeclaredNames::new(vec!["a.B".into()]);
        let long = format!("a.B/{}", "c".repeat(NAME_BYTES_MAX));
        for name in ["", "a.B", "a.B/", "/C", "a.B/C/D", "a.B/C D", "ä/C", "x.Y/C", &long] {
            assert!(!undeclared.accepts(name), "{name}");
        }
        assert!(undeclared.accepts("a.B/C"));
        assert!(UndeclaredNames::new(Vec::new()).accepts("x.Y/C"));
    }
}
