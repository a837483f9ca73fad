//! Calls on wires that a listener has not enabled.

use switchboard_core::Result;
use switchboard_wire::{Status, WireId, WireSet};

/// # Errors
/// `Unimplemented` for a call on a wire that is not in `enabled`.
#[inline]
pub fn admit(enabled: WireSet, wire: Option<WireId>) -> Result<()> {
    match wire {
        Some(wire) if !enabled.has(wire) => Err(disabled(enabled, wire.name())),
        _ => Ok(()),
    }
}

/// Creates the status for a wire or protocol that is not enabled.
#[cold]
pub fn disabled(enabled: WireSet, name: &str) -> Status {
    Status::unimplemented(format!("{name} is not enabled on this server; enabled: {enabled} (wires)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_admit_their_members() {
        let enabled = WireSet::of_names(["grpc", "native"]).unwrap();
        assert!(admit(enabled, Some(WireId::GRPC)).is_ok() && admit(enabled, Some(WireId::NATIVE)).is_ok());
        assert!(admit(enabled, None).is_ok() && admit(WireSet::ALL, Some(WireId::LOCAL)).is_ok());
        let status = admit(enabled, Some(WireId::JSON_RPC)).unwrap_err();
        assert_eq!(status.message(), "jsonrpc is not enabled on this server; enabled: grpc, native (wires)");
    }
}
