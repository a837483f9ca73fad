//! Keys that group calls for rates and fair queueing.

use foldhash::quality::RandomState;
use std::{
    hash::{BuildHasher, Hasher},
    net::IpAddr,
};
use switchboard_core::Cx;

#[derive(Clone, Debug)]
pub(super) enum Key {
    All,
    Caller,
    Metadata(String),
    Method,
    Peer,
}

impl Key {
    /// Returns the hash of the call's group, unpredictable outside of this process.
    pub(super) fn of(&self, cx: &Cx, secret: &RandomState) -> u64 {
        let mut hasher = secret.build_hasher();
        match self {
            Key::All => {}
            Key::Caller => hasher.write(cx.caller().map_or("", |caller| &caller.name).as_bytes()),
            Key::Metadata(name) => hasher.write(cx.metadata().value(name).map_or(&[][..], |value| value)),
            Key::Method if cx.undeclared_name().is_some() => {
                hasher.write(cx.undeclared_name().unwrap_or_default().as_bytes());
            }
            // Each method has its own static.
            Key::Method => hasher.write_usize(std::ptr::from_ref(cx.method()) as usize),
            Key::Peer => match cx.peer().socket.map(|socket| socket.ip().to_canonical()) {
                None => {}
                Some(IpAddr::V4(address)) => hasher.write(&address.octets()),
                // A host owns its whole /64 network.
                Some(IpAddr::V6(address)) => hasher.write(&address.octets()[..8]),
            },
        }
        hasher.finish()
    }

    /// Returns the hash of the group with this name or value.
    pub(super) fn of_name(name: &str, secret: &RandomState) -> u64 {
        let mut hasher = secret.build_hasher();
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// Returns a description of the groups for messages.
    pub(super) fn description(&self) -> String {
        match self {
            Key::All => "all callers together".to_owned(),
            Key::Caller => "one caller".to_owned(),
            Key::Metadata(name) => format!("one value of {name}"),
            Key::Method => "one method".to_owned(),
            Key::Peer => "one address".to_owned(),
        }
    }
}
