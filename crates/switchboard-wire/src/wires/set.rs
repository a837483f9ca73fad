//! Sets of wires.

use super::WireId;
use std::fmt;

/// A set of wires.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct WireSet(u32);

// A bit for each number.
const _: () = assert!(WireId::COUNT_MAX <= u32::BITS as usize);

impl WireSet {
    /// No wire.
    pub const NONE: WireSet = WireSet(0);

    /// Every wire, those that are registered later included: for calls without a listener.
    pub const ALL: WireSet = WireSet(u32::MAX);

    /// Returns all wires of this build that listeners accept; registered ones are added one by one.
    pub fn built_in() -> WireSet {
        WireId::built_in_all().filter(|id| id.spec().is_served()).collect()
    }

    /// Returns the wires with these names or aliases.
    ///
    /// # Errors
    /// Fails on a name that no listener accepts, and on an empty list.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<WireSet, String> {
        let mut wires = WireSet::NONE;
        for name in names {
            let found = WireId::named(name).filter(|id| id.spec().is_served());
            let id = found.ok_or_else(|| {
                let known = WireId::all().filter(|id| id.spec().is_served()).collect::<WireSet>();
                format!("{name:?} is not a wire; the wires are {known}")
            })?;
            wires.insert(id);
        }
        if wires == WireSet::NONE { Err("name at least one".to_owned()) } else { Ok(wires) }
    }

    /// Adds a wire.
    pub fn insert(&mut self, id: WireId) {
        self.0 |= 1 << id.index();
    }

    /// Returns true if the set contains the wire.
    #[inline]
    pub const fn has(self, id: WireId) -> bool {
        self.0 >> id.index() & 1 == 1
    }

    /// Returns true if the set contains all of `other`.
    #[inline]
    pub const fn has_all(self, other: WireSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the intersection.
    #[must_use]
    pub const fn and(self, other: WireSet) -> WireSet {
        WireSet(self.0 & other.0)
    }

    /// Returns the union.
    #[must_use]
    pub const fn or(self, other: WireSet) -> WireSet {
        WireSet(self.0 | other.0)
    }

    /// Returns the wires, by number.
    pub fn iter(self) -> impl Iterator<Item = WireId> {
        WireId::all().filter(move |id| self.has(*id))
    }
}

impl FromIterator<WireId> for WireSet {
    fn from_iter<I: IntoIterator<Item = WireId>>(ids: I) -> WireSet {
        let mut wires = WireSet::NONE;
        for id in ids {
            wires.insert(id);
        }
        wires
    }
}

impl fmt::Debug for WireSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Writes the names, separated by commas.
impl fmt::Display for WireSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter();
        let Some(first) = ids.next() else { return Ok(()) };
        f.write_str(first.name())?;
        ids.try_for_each(|id| write!(f, ", {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_names() {
        let wires = WireSet::of_names(["native", "grpc-web-text", "native"]).unwrap();
        assert_eq!(wires.to_string(), "grpc-web, native");
        assert!(wires.has(WireId::GRPC_WEB) && !wires.has(WireId::GRPC));
        assert_eq!(wires.and(WireSet::of_names(["grpc-web", "grpc"]).unwrap()).to_string(), "grpc-web");
        assert!(WireSet::built_in().has_all(wires) && !WireSet::built_in().has(WireId::LOCAL));
        let error = WireSet::of_names(["soap"]).unwrap_err();
        assert!(error.contains("\"soap\" is not a wire; the wires are baidu_std, connect, "), "{error}");
        for names in [&[][..], &["local"], &["websocket"], &[""]] {
            assert!(WireSet::of_names(names.iter().copied()).is_err(), "{names:?}");
        }
    }
}
