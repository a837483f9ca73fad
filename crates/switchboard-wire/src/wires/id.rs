//! Numbers of wires in this process.

use super::WIRES;
use crate::spec::WireSpec;
use std::{
    fmt, ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Longest name of a wire, in bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// Wires that applications have registered, by number; those before the first empty one are in use.
static REGISTERED: [OnceLock<&'static WireSpec>; WireId::COUNT_MAX - WIRES.len()] =
    [const { OnceLock::new() }; WireId::COUNT_MAX - WIRES.len()];

/// Held while a wire is registered.
static REGISTERING: Mutex<()> = Mutex::new(());

/// Names of connection protocols, and of a connection without one: they are labels beside the names of wires.
const TAKEN: [&str; 4] = ["http1", "http2", "none", "tls"];

/// Number of a wire in this process.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WireId(u8);

impl WireId {
    /// Largest number of wires in a process, registered ones included. Counters are sized for it.
    pub const COUNT_MAX: usize = 32;

    /// Connect.
    pub const CONNECT: WireId = WireId::built_in("connect");
    /// gRPC.
    pub const GRPC: WireId = WireId::built_in("grpc");
    /// gRPC-Web.
    pub const GRPC_WEB: WireId = WireId::built_in("grpc-web");
    /// JSON on HTTP with the paths of the schema.
    pub const HTTP_JSON: WireId = WireId::built_in("http-json");
    /// JSON-RPC.
    pub const JSON_RPC: WireId = WireId::built_in("jsonrpc");
    /// Calls inside the process.
    pub const LOCAL: WireId = WireId::built_in("local");
    /// The native wire.
    pub const NATIVE: WireId = WireId::built_in("native");
    /// rpcx, if it is in this build.
    pub const RPCX: Option<WireId> = WireId::in_build("rpcx");
    /// Apache Thrift, if it is in this build.
    pub const THRIFT: Option<WireId> = WireId::in_build("thrift");
    /// Label of calls inside WebSockets.
    pub const WEBSOCKET: WireId = WireId::built_in("websocket");

    /// Returns the number of a wire in [`WIRES`]; fails to compile for another name.
    const fn built_in(name: &str) -> WireId {
        match WireId::in_build(name) {
            Some(id) => id,
            None => panic!("no wire has this name"),
        }
    }

    /// Returns the number of a wire in [`WIRES`].
    const fn in_build(name: &str) -> Option<WireId> {
        let mut at = 0;
        while at < WIRES.len() {
            if is_same(WIRES[at].name, name) {
                return Some(WireId(at as u8));
            }
            at += 1;
        }
        None
    }

    /// Returns the number of this wire, if it is in [`WIRES`] or registered.
    pub fn of(spec: &'static WireSpec) -> Option<WireId> {
        WireId::all().find(|id| ptr::eq(id.spec(), spec))
    }

    /// Returns the wire with this name or alias.
    pub fn named(name: &str) -> Option<WireId> {
        WireId::all().find(|id| id.spec().has_name(name))
    }

    /// Gives the wire a number in this process, for the rest of its life; returns the same number for the same
    /// descriptor.
    ///
    /// # Errors
    /// Fails for a name that is invalid or belongs to another wire, for a wire that neither listeners nor channels can
    /// use, and if there are [`COUNT_MAX`](Self::COUNT_MAX) wires.
    pub fn register(spec: &'static WireSpec) -> Result<WireId, String> {
        let registering = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = WireId::of(spec) {
            return Ok(id);
        }
        check(spec)?;
        let free = REGISTERED.iter().position(|place| place.set(spec).is_ok());
        drop(registering);
        let free = free.ok_or_else(|| {
            let most = WireId::COUNT_MAX;
            format!("wire {:?}: a process has at most {most} wires, and all numbers are in use", spec.name)
        })?;
        Ok(WireId((WIRES.len() + free) as u8))
    }

    /// Returns all wires: those in [`WIRES`], then the registered ones.
    pub fn all() -> impl DoubleEndedIterator<Item = WireId> {
        let registered = REGISTERED.iter().take_while(|place| place.get().is_some()).count();
        (0..WIRES.len() + registered).map(|at| WireId(at as u8))
    }

    /// Returns the wires in [`WIRES`].
    pub fn built_in_all() -> impl Iterator<Item = WireId> {
        (0..WIRES.len()).map(|at| WireId(at as u8))
    }

    /// Returns the registered wires.
    pub fn registered() -> impl Iterator<Item = WireId> {
        WireId::all().skip(WIRES.len())
    }

    /// Returns the descriptor.
    #[inline]
    pub fn spec(self) -> &'static WireSpec {
        match WIRES.get(self.index()) {
            Some(spec) => spec,
            None => REGISTERED[self.index() - WIRES.len()].get().expect("ids are those of registered wires"),
        }
    }

    /// Returns the name in options, metrics and messages.
    #[inline]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the number, below [`COUNT_MAX`](Self::COUNT_MAX).
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Checks a wire before its registration.
fn check(spec: &WireSpec) -> Result<(), String> {
    for name in [spec.name].iter().chain(spec.aliases) {
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(format!(
                "wire {name:?}: a name has 1 to {NAME_BYTES_MAX} of the characters a-z, 0-9, - and _"
            ));
        }
        if TAKEN.contains(name) || WireId::named(name).is_some() {
            return Err(format!("wire {name:?}: the name is in use; choose another"));
        }
    }
    if spec.sniff.is_none() && spec.server.is_some() {
        return Err(format!("wire {:?}: `server` needs `sniff`, which detects its connections", spec.name));
    }
    if spec.sniff.is_none() && !spec.speaks_first && !spec.is_callable() {
        return Err(format!("wire {:?}: it has neither a server nor a client", spec.name));
    }
    Ok(())
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ClientSupport;

    #[test]
    fn the_list_is_sorted_and_its_names_are_unique() {
        assert!(WIRES.windows(2).all(|pair| pair[0].name < pair[1].name));
        for id in WireId::all() {
            let spec = id.spec();
            assert_eq!((WireId::of(spec), WireId::named(spec.name)), (Some(id), Some(id)));
            for alias in spec.aliases {
                assert_eq!(WireId::named(alias), Some(id), "{alias}");
            }
            assert_eq!(spec.sniff.is_some(), spec.server.is_some(), "{id}");
        }
        assert_eq!((WireId::NATIVE.name(), WireId::LOCAL.name()), ("native", "local"));
    }

    #[test]
    fn registered_wires_have_a_name_of_their_own() {
        static FIRST: WireSpec = WireSpec { client: ClientSupport::BuiltIn, ..WireSpec::named("first") };
        static SAME: WireSpec = WireSpec { client: ClientSupport::BuiltIn, ..WireSpec::named("first") };
        static ALIAS: WireSpec =
            WireSpec { aliases: &["thrift"], client: ClientSupport::BuiltIn, ..WireSpec::named("second") };
        static UPPER: WireSpec = WireSpec { client: ClientSupport::BuiltIn, ..WireSpec::named("Third") };
        static LABEL: WireSpec = WireSpec { client: ClientSupport::BuiltIn, ..WireSpec::named("http1") };
        static IDLE: WireSpec = WireSpec::named("idle");
        let id = WireId::register(&FIRST).unwrap();
        assert_eq!((WireId::register(&FIRST), WireId::named("first")), (Ok(id), Some(id)));
        assert!(ptr::eq(id.spec(), &FIRST) && WireId::registered().any(|known| known == id));
        for (spec, why) in [
            (&SAME, "in use"),
            (&ALIAS, "\"thrift\""),
            (&UPPER, "a-z"),
            (&LABEL, "in use"),
            (&IDLE, "neither"),
        ] {
            let error = WireId::register(spec).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
