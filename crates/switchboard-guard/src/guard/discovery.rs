//! Visibility of methods: descriptions and hints list only the methods that the caller may call.
//!
//! The caller is authenticated with the same credentials as for a call. A rule that names a description
//! itself, `grpc.reflection.*` or `openapi.json`, determines who may read it; callers that it admits see the
//! full description.

use super::{Guarding, access::Check, admit_wire, authenticate::audit, hinted, unknown::UnknownRules};
use std::sync::Arc;
use switchboard_core::{Caller, Peer, Result};
use switchboard_wire::{Metadata, MethodId, MethodTable, Status};

/// The methods of a server that a caller may see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Visible {
    /// Visibility by method number; `None` if all methods are visible.
    shown: Option<Arc<[bool]>>,
}

impl Visible {
    pub(crate) const ALL: Visible = Visible { shown: None };

    /// Returns whether the caller may see the method.
    pub fn has(&self, id: MethodId) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.get(usize::from(id.0)).copied().unwrap_or(false))
    }

    /// Returns whether the caller may see every method.
    pub fn is_all(&self) -> bool {
        self.shown.is_none()
    }

    fn is_empty(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| !shown.is_empty() && !shown.contains(&true))
    }

    /// Returns true if any method of the service is visible.
    pub fn has_service(&self, table: &MethodTable, name: &str) -> bool {
        let mut ids = (0..table.len()).map(|at| MethodId(at as u16));
        self.is_all() || ids.any(|id| table.service(id).name == name && self.has(id))
    }
}

impl Guarding {
    /// Returns true if every caller may call every method.
    pub fn is_open(&self) -> bool {
        self.auth.is_empty() && self.rules.is_empty()
    }

    /// Returns true if callers of the method must have credentials.
    pub fn needs_caller(&self, table: &MethodTable, id: MethodId) -> bool {
        self.check(table, id).is_some_and(Check::needs_caller)
    }

    /// Returns the methods that the sender of a request for the description `name` may see.
    ///
    /// # Errors
    /// `Unauthenticated` for invalid credentials, and for missing ones if no method is public; the error of a
    /// rule for `name`; `Unimplemented` on a wire that is not enabled.
    pub async fn describe(
        &self,
        table: &MethodTable,
        peer: &Arc<Peer>,
        metadata: Metadata,
        name: &str,
    ) -> Result<Visible> {
        let described = self.try_describe(table, peer, metadata, name).await;
        described.inspect_err(|status| audit(peer, name, status))
    }

    async fn try_describe(
        &self,
        table: &MethodTable,
        peer: &Arc<Peer>,
        metadata: Metadata,
        name: &str,
    ) -> Result<Visible> {
        super::admit_wire(peer.wires, peer.wire)?;
        if self.is_open() {
            return Ok(Visible::ALL);
        }
        let rule = self.rules.iter().find(|rule| rule.is_of_discovery() && rule.is_for(name));
        if name.starts_with("grpc.health.") && rule.is_none() {
            // Probes have no credentials, and invalid ones do not stop them.
            let caller = self.caller(peer, metadata, name).await.unwrap_or_default();
            return Ok(self.visible(table, peer, caller.as_deref()));
        }
        let caller = self.caller(peer, metadata, name).await?;
        let caller = caller.as_deref();
        if let Some(rule) = rule {
            // The networks of the rule were parsed at the start.
            let check = rule.check().map_err(|error| Status::internal(error.to_string()))?;
            check.before(peer)?;
            check.after(caller).map_err(|status| hinted(status, caller, &self.accepted))?;
            return Ok(Visible::ALL);
        }
        let visible = self.visible(table, peer, caller);
        match (visible.is_empty(), caller) {
            (false, _) => Ok(visible),
            (true, None) if !self.auth.is_empty() => {
                let text = format!("{name} is not described to callers without credentials");
                Err(hinted(Status::unauthenticated(text), None, &self.accepted))
            }
            (true, _) => Err(Status::permission_denied("this caller may not call any method")),
        }
    }

    /// Checks whether the sender of a request may call a method, before the request is parsed.
    ///
    /// # Errors
    /// Returns the errors that the call would end with.
    pub async fn may_call(
        &self,
        table: &MethodTable,
        peer: &Arc<Peer>,
        metadata: Metadata,
        method: MethodId,
    ) -> Result<()> {
        let Some(check) = self.check(table, method) else { return Ok(()) };
        let name = table.full_name(method);
        let checked = async {
            super::admit_wire(peer.wires, peer.wire)?;
            check.before(peer)?;
            let caller = self.caller(peer, metadata, &name).await?;
            let caller = caller.as_deref();
            check.after(caller).map_err(|status| hinted(status, caller, &self.accepted))
        };
        checked.await.inspect_err(|status| audit(peer, &name, status))
    }

    /// Checks whether the sender of a request may find out that the method `name` is unknown, and returns the methods
    /// that it may see.
    ///
    /// # Errors
    /// Returns the errors that the call would end with if there were such a method.
    pub async fn may_miss(
        &self,
        table: &MethodTable,
        peer: &Arc<Peer>,
        metadata: Metadata,
        name: &str,
    ) -> Result<Visible> {
        if !table.guards_unknown() {
            let visible = self.try_describe(table, peer, metadata, name).await;
            // The text for callers who may see nothing lists nothing.
            return Ok(visible.unwrap_or_else(|_| self.visible(table, peer, None)));
        }
        let checked = async {
            admit_wire(peer.wires, peer.wire)?;
            // The networks of the rules were parsed at the start.
            let rules =
                UnknownRules::new(&self.rules).map_err(|error| Status::internal(error.to_string()))?;
            let check = rules.check(name);
            check.before(peer)?;
            let caller = self.caller(peer, metadata, name).await?;
            let caller = caller.as_deref();
            check.after(caller).map_err(|status| hinted(status, caller, &self.accepted))?;
            Ok(self.visible(table, peer, caller))
        };
        checked.await.inspect_err(|status| audit(peer, name, status))
    }

    fn visible(&self, table: &MethodTable, peer: &Peer, caller: Option<&Caller>) -> Visible {
        let may = |check: &Check| check.before(peer).is_ok() && check.after(caller).is_ok();
        let ids = (0..table.len()).map(|at| MethodId(at as u16));
        let shown: Arc<[bool]> = ids.map(|id| self.check(table, id).is_none_or(may)).collect();
        Visible { shown: shown.contains(&false).then_some(shown) }
    }
}
