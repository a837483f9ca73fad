//! Whose calls are taken together.

use crate::Cx;
use foldhash::quality::RandomState;
use std::{
    hash::{BuildHasher, Hasher},
    net::IpAddr,
};

#[derive(Clone, Debug)]
pub(super) enum Key {
    All,
    Caller,
    Metadata(String),
    Method,
    Peer,
}

impl Key {
    /// A number for the one who calls, which nobody outside of this process can foresee.
    pub(super) fn of(&self, cx: &Cx, secret: &RandomState) -> u64 {
        let mut hasher = secret.build_hasher();
        match self {
            Key::All => {}
            Key::Caller => hasher.write(cx.caller().map_or("", |caller| &caller.name).as_bytes()),
            Key::Metadata(name) => hasher.write(cx.metadata().value(name).map_or(&[][..], |value| value)),
            // One static a method.
            Key::Method => hasher.write_usize(std::ptr::from_ref(cx.method()) as usize),
            Key::Peer => match cx.peer().socket.map(|socket| socket.ip().to_canonical()) {
                None => {}
                Some(IpAddr::V4(address)) => hasher.write(&address.octets()),
                // A host has all of its network.
                Some(IpAddr::V6(address)) => hasher.write(&address.octets()[..8]),
            },
        }
        hasher.finish()
    }

    /// The number of the one with this name, or value.
    pub(super) fn of_name(name: &str, secret: &RandomState) -> u64 {
        let mut hasher = secret.build_hasher();
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// Whom, for texts.
    pub(super) fn whom(&self) -> String {
        match self {
            Key::All => "all callers together".to_owned(),
            Key::Caller => "one caller".to_owned(),
            Key::Metadata(name) => format!("one value of {name}"),
            Key::Method => "one method".to_owned(),
            Key::Peer => "one address".to_owned(),
        }
    }
}
