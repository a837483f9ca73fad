//! Set of enabled wires.

use crate::{Error, Result, Status};

/// A set of wires, by their names in [`Peer::wire`](crate::Peer::wire).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wires(u16);

const NAMES: [&str; 13] = [
    "baidu_std",
    "connect",
    "erpc",
    "grpc",
    "grpc-web",
    "http-json",
    "hulu",
    "jsonrpc",
    "kiss",
    "native",
    "rpcx",
    "sofa",
    "thrift",
];

impl Wires {
    pub(crate) const ALL: Wires = Wires(u16::MAX);

    /// # Errors
    /// Fails on an unknown wire, and on an empty set.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Wires, Error> {
        let mut wires = Wires(0);
        for name in names {
            let known = NAMES.iter().position(|known| *known == name);
            let known = known.ok_or_else(|| {
                Error::config(format!("wires: {name:?} is not a wire; the wires are {}", NAMES.join(", ")))
            })?;
            wires.0 |= 1 << known;
        }
        if wires.0 == 0 { Err(Error::config("wires: name at least one")) } else { Ok(wires) }
    }

    /// Returns the intersection.
    pub(crate) fn and(self, other: Wires) -> Wires {
        Wires(self.0 & other.0)
    }

    /// # Errors
    /// `Unimplemented` for a call on another wire.
    #[inline]
    pub(crate) fn admit(self, wire: &str) -> Result<()> {
        if self == Wires::ALL { Ok(()) } else { self.admit_some(wire) }
    }

    #[cold]
    fn admit_some(self, wire: &str) -> Result<()> {
        let has = |at: &usize| self.0 & (1 << at) != 0;
        if NAMES.iter().position(|known| *known == wire).is_none_or(|at| has(&at)) {
            return Ok(());
        }
        let spoken: Vec<_> = (0..NAMES.len()).filter(has).map(|at| NAMES[at]).collect();
        Err(Status::unimplemented(format!(
            "{wire} is not enabled on this server; enabled: {} (wires)",
            spoken.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_admit_their_members() {
        let wires = Wires::of(["grpc", "native"]).unwrap();
        assert!(wires.admit("grpc").is_ok() && wires.admit("native").is_ok() && wires.admit("local").is_ok());
        let status = wires.admit("jsonrpc").unwrap_err();
        assert_eq!(status.message(), "jsonrpc is not enabled on this server; enabled: grpc, native (wires)");
        assert!(Wires::of(["soap"]).unwrap_err().to_string().contains("the wires are baidu_std, connect, "));
        assert!(Wires::of([]).is_err());
        assert!(wires.and(Wires::of(["grpc"]).unwrap()).admit("native").is_err());
    }
}
