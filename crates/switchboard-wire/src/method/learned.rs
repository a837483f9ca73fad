//! Methods that no service declares, learned by the names that callers use.
//!
//! Places are filled once and never emptied, so that a name is found without a lock. Whoever calls fills them: there are
//! [`LEARNED_MAX`], and what is learned is never freed.

use super::{Kind, MethodInfo, Params, ServiceInfo};
use std::{
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
};

/// Methods that one server learns.
pub const LEARNED_MAX: usize = 1024;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Learned {
    /// Only methods of these; of every service when there are none.
    services: Vec<Box<str>>,
    /// So that callers cannot choose names that meet.
    hashing: RandomState,
    places: Box<[OnceLock<&'static ServiceInfo>]>,
}

impl Learned {
    pub(super) fn new(services: Vec<Box<str>>) -> Learned {
        let places = (0..LEARNED_MAX).map(|_| OnceLock::new()).collect();
        Learned { services, hashing: RandomState::new(), places }
    }

    /// The place of the method that is called so; none for what is no name, and when there is no place left.
    pub(super) fn find(&self, path: &str, kind: Kind) -> Option<u16> {
        let (service, method) = self.split(path)?;
        let hash = self.hashing.hash_one((path, kind)) as usize;
        (0..LEARNED_MAX).map(|step| hash.wrapping_add(step) % LEARNED_MAX).find_map(|at| {
            let info = self.places[at].get_or_init(|| leak(service, method, kind));
            let same = info.name == service && info.methods[0].name == method && info.methods[0].kind == kind;
            same.then_some(at as u16)
        })
    }

    pub(super) fn get(&self, place: usize) -> Option<&'static ServiceInfo> {
        self.places.get(place)?.get().copied()
    }

    pub(super) fn is_full(&self) -> bool {
        self.places.iter().all(|place| place.get().is_some())
    }

    /// Service and method, of a name that may be learned.
    fn split<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str)> {
        let is_name = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        };
        let is_taken =
            |service: &str| self.services.is_empty() || self.services.iter().any(|known| **known == *service);
        path.split_once('/').filter(|(service, method)| {
            path.len() <= NAME_BYTES_MAX && is_name(service) && is_name(method) && is_taken(service)
        })
    }
}

fn leak(service: &str, method: &str, kind: Kind) -> &'static ServiceInfo {
    let leak = |text: &str| -> &'static str { Box::leak(text.into()) };
    let methods = Box::leak(Box::new([MethodInfo::new(leak(method), kind).params(Params::AsSent)]));
    Box::leak(Box::new(ServiceInfo { name: leak(service), methods, descriptor: &[] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_place_for_each_kind() {
        let learned = Learned::new(Vec::new());
        let first = learned.find("a.B/C", Kind::Unary).unwrap();
        assert_eq!(learned.find("a.B/C", Kind::Unary), Some(first));
        assert_ne!(learned.find("a.B/C", Kind::Bidi), Some(first));
        let info = learned.get(usize::from(first)).unwrap();
        assert_eq!((info.name, info.methods[0].name), ("a.B", "C"));
    }

    #[test]
    fn what_is_no_name_takes_no_place() {
        let learned = Learned::new(vec!["a.B".into()]);
        let long = format!("a.B/{}", "c".repeat(NAME_BYTES_MAX));
        for name in ["", "a.B", "a.B/", "/C", "a.B/C/D", "a.B/C D", "ä/C", "x.Y/C", &long] {
            assert_eq!(learned.find(name, Kind::Unary), None, "{name}");
        }
        assert!(learned.places.iter().all(|place| place.get().is_none()));
        assert!(learned.find("a.B/C", Kind::Unary).is_some());
    }

    #[test]
    fn callers_cannot_make_it_grow() {
        let learned = Learned::new(Vec::new());
        let mut places: Vec<_> =
            (0..LEARNED_MAX).filter_map(|n| learned.find(&format!("a.B/M{n}"), Kind::Unary)).collect();
        places.sort_unstable();
        assert!(places.iter().map(|place| usize::from(*place)).eq(0..LEARNED_MAX));
        assert!(learned.is_full());
        assert_eq!(learned.find("a.B/OneMore", Kind::Unary), None);
        assert!(learned.find("a.B/M7", Kind::Unary).is_some(), "what was learned stays");
    }
}
