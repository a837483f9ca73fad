//! Guards between every wire and the handlers: access, authentication, rates, limits, layers.
//!
//! ```text
//! connection: address lists, on_connect
//! call: deadline ─► wires ─► rules by address ─► auth ─► rules by caller ─► rates ─► concurrency, fair queue ─► layers
//! ```
//!
//! The built-in guards are plain functions over the call. The permits that a call takes, its `Permit`, are
//! released when the call has ended: with a response, an error, a cancellation, or the end of its stream. An
//! admitted call costs no allocation; a server without guards has no chain and pays one branch.

mod access;
mod audit;
mod authenticate;
mod batch;
pub mod concurrency;
mod deadlines;
#[cfg(feature = "http")]
mod discovery;
mod explain;
mod fair;
mod hooks;
mod key;
mod permit;
#[cfg(test)]
mod properties;
mod rate;
mod results;
mod settings;
mod unknown;
mod wires;

#[doc(hidden)]
pub use access::OPENAPI;
pub use access::{Network, Rule};
#[doc(hidden)]
pub use batch::BatchScope;
pub use concurrency::Concurrency;
#[cfg(feature = "http")]
#[doc(hidden)]
pub use discovery::Visible;
pub use fair::Fair;
use permit::LayeredPermit;
pub(crate) use permit::Permit;
pub use rate::Rate;
pub use results::ResultCache;
#[doc(hidden)]
pub use settings::{Guarding, Guards};
#[doc(inline)]
pub use switchboard_core::pattern::matches;
#[doc(hidden)]
pub use unknown::Unknown;
#[doc(hidden)]
pub use wires::{admit as admit_wire, disabled as disabled_wire};

use access::Check;
use batch::PermitBatch;
use concurrency::Limiter;
use fair::FairAdmission;
use std::sync::Arc;
#[doc(hidden)]
pub use switchboard_auth::auth::{Accepted, Auth, Checked, Credentials, unauthenticated};
use switchboard_core::{
    Call, Caller, Reply, Result,
    layer::{BoxFuture, DetachPermits, End, Layer, Next},
};
use switchboard_wire::Status;
#[doc(hidden)]
pub use unknown::UnknownRules;

/// The guards and layers of one service.
#[doc(hidden)]
pub struct Chain {
    /// Methods by their index in the service.
    methods: Vec<Method>,
    auth: Arc<[Box<dyn Auth>]>,
    /// Kinds of credentials that `auth` accepts, for the errors of callers without any.
    accepted: Arc<Accepted>,
    /// Set if one of `auth` reads messages.
    auth_reads: bool,
    /// Set if calls are checked for wire, rules or credentials.
    screens: bool,
    /// Fair queue for permits of the first limit.
    queue: Option<Arc<fair::Queue>>,
    layers: Vec<Arc<dyn Layer>>,
    /// Rule for callers that may receive a report on the limits; without a rule there are no reports.
    explains: Option<Check>,
    /// Set for the service of unknown methods.
    unknown: Option<UnknownRules>,
}

/// The guards of one method.
#[derive(Clone, Default)]
struct Method {
    /// Full name.
    name: Box<str>,
    check: Check,
    rates: Vec<Arc<rate::Limit>>,
    /// Limits of the server, the service and the method, as configured; the widest first.
    limiters: Vec<Arc<Limiter>>,
    /// Limits among `limiters` that reject calls whose deadline is too near.
    in_time: Vec<Arc<Limiter>>,
}

/// Decision of the guards on a call.
pub(crate) enum Admission<'chain, 'call> {
    /// The call is admitted.
    Admitted(Permit<'chain>),
    /// The call is rejected.
    Rejected(Status),
    /// The call waits for authentication or in the fair queue; resolves when it is admitted or rejected.
    Queued(BoxFuture<'call, Result<Permit<'chain>>>),
}

impl Chain {
    /// Passes a call through the guards.
    #[inline]
    pub(crate) fn begin<'chain, 'call>(
        self: &'chain Arc<Self>,
        call: &'call mut Call,
    ) -> Admission<'chain, 'call>
    where
        'chain: 'call,
    {
        if self.screens {
            match self.screen(call) {
                Ok(None) => {}
                Ok(Some(later)) => return Admission::Queued(Box::pin(self.begin_later(call, later))),
                Err(status) => return Admission::Rejected(status),
            }
        }
        self.admit(call)
    }

    /// Continues `begin` for a call whose caller is authenticated asynchronously.
    async fn begin_later<'chain>(
        self: &'chain Arc<Self>,
        call: &mut Call,
        later: Later,
    ) -> Result<Permit<'chain>> {
        let by = self.auth[later.by].name();
        let known = later.caller.await.inspect_err(|status| self.audit(call, by, status));
        call.cx_mut().set_caller(known?);
        self.check_caller(call, by)?;
        check_deadline(call)?;
        match self.admit(call) {
            Admission::Admitted(permit) => Ok(permit),
            Admission::Rejected(status) => Err(status),
            Admission::Queued(waiting) => waiting.await,
        }
    }

    /// Authenticates the caller and checks the rules.
    fn screen(&self, call: &mut Call) -> Result<Option<Later>> {
        let method = self.method(call.method());
        let cx = call.cx();
        let before =
            admit_wire(cx.peer().wires, cx.peer().wire).and_then(|()| self.check_of(call).before(cx.peer()));
        before.inspect_err(|status| self.audit(call, "rule", status))?;
        if self.auth_reads {
            call.unpack_message()?;
        }
        let called = (&*method.name == "*").then(|| call.full_name());
        let name = called.as_deref().unwrap_or(&method.name);
        for (by, auth) in self.auth.iter().enumerate() {
            match auth.check(&Credentials::new(call, name)) {
                Checked::Absent => {}
                Checked::Caller(caller) => {
                    call.cx_mut().set_caller(caller);
                    return self.check_caller(call, auth.name()).map(|()| None);
                }
                Checked::CachedCaller(caller) => {
                    call.cx_mut().set_known_caller(caller);
                    return self.check_caller(call, auth.name()).map(|()| None);
                }
                Checked::Unauthenticated(why) => {
                    let status = unauthenticated(why);
                    self.audit(call, auth.name(), &status);
                    return Err(status);
                }
                Checked::Later(caller) => return Ok(Some(Later { by, caller })),
            }
        }
        self.check_caller(call, "none").map(|()| None)
    }

    /// Checks the rules for the caller after authentication.
    fn check_caller(&self, call: &Call, by: &str) -> Result<()> {
        switchboard_core::access::note_caller(call.cx());
        let caller = call.cx().caller();
        // An empty name would be shared by all callers without a name.
        let checked = match caller.is_some_and(|caller| caller.name.is_empty()) {
            true => Err(unauthenticated("the credentials contain no caller name")),
            false => self.check_of(call).after(caller),
        };
        checked
            .map_err(|status| hinted(status, caller, &self.accepted))
            .inspect_err(|status| self.audit(call, by, status))
    }

    /// Takes all the tokens and permits that the call needs, or none.
    #[inline]
    fn admit<'chain, 'call>(self: &'chain Arc<Self>, call: &'call Call) -> Admission<'chain, 'call>
    where
        'chain: 'call,
    {
        let mut permit = Permit::new(self, call.method());
        let passed = match PermitBatch::of(self, call.method()) {
            None => self.pass(call, None).map(|()| false),
            Some(mut kept) => {
                let passed = self.pass(call, Some(&mut kept));
                let is_calm = self.queue.as_ref().is_none_or(|queue| queue.is_calm());
                let lends = passed.is_ok() && is_calm && kept.lend_permits(self, &mut permit);
                if is_calm {
                    kept.keep();
                } else {
                    kept.release_all();
                }
                passed.map(|()| lends)
            }
        };
        match passed {
            Ok(false) => {}
            Ok(true) => return Admission::Admitted(permit),
            Err(status) => return Admission::Rejected(status),
        }
        if let Some(queue) = &self.queue {
            match queue.enter(call.cx()) {
                Ok(FairAdmission::Admitted(first)) => permit.entered(first),
                Ok(FairAdmission::Queued(waiting)) => {
                    return Admission::Queued(Box::pin(async move {
                        let admitted = match waiting.admitted().await {
                            Ok(first) => {
                                permit.entered(first);
                                check_deadline(call).and_then(|()| permit.enter())
                            }
                            Err(status) => Err(status),
                        };
                        admitted.inspect_err(|_| self.refund(call))?;
                        Ok(permit)
                    }));
                }
                Err(status) => {
                    self.refund(call);
                    return Admission::Rejected(status);
                }
            }
        }
        match permit.enter() {
            Ok(()) => Admission::Admitted(permit),
            Err(status) => {
                self.refund(call);
                Admission::Rejected(status)
            }
        }
    }

    /// Takes a token of every rate, or of none, and checks that the deadline leaves the usual time of calls.
    #[inline]
    fn pass(&self, call: &Call, mut kept: Option<&mut PermitBatch>) -> Result<()> {
        let method = self.method(call.method());
        for (at, rate) in method.rates.iter().enumerate() {
            if let Err(status) = rate.take(call, kept.as_deref_mut().and_then(|kept| kept.ahead(at))) {
                self.refund_first(at, call, kept);
                return Err(status);
            }
        }
        let deadline = call.cx().deadline();
        let in_time = method.in_time.iter().try_for_each(|limiter| limiter.check_time(deadline));
        in_time.inspect_err(|_| self.refund_first(method.rates.len(), call, kept))
    }

    /// Returns the tokens of a call that a limit rejected.
    fn refund(&self, call: &Call) {
        self.refund_first(self.method(call.method()).rates.len(), call, None);
    }

    /// Returns the tokens of the first `rates` rates.
    #[cold]
    fn refund_first(&self, rates: usize, call: &Call, mut kept: Option<&mut PermitBatch>) {
        for (at, rate) in self.method(call.method()).rates[..rates].iter().enumerate() {
            rate.refund(call, kept.as_deref_mut().and_then(|kept| kept.ahead(at)));
        }
    }

    /// Writes an audit line for a denied call, with the reason.
    #[cold]
    fn audit(&self, call: &Call, by: &str, status: &Status) {
        let Some(left_out) = audit::line() else { return };
        let cx = call.cx();
        tracing::warn!(
            target: "switchboard::audit",
            left_out,
            method = &*self.method(call.method()).name,
            peer = cx.peer().address,
            wire = cx.peer().wire(),
            caller = cx.caller().map(|caller| &caller.name[..]),
            by,
            code = status.code().name(),
            "denied: {}",
            status.message()
        );
    }

    /// Returns whether there are layers around the handler.
    #[inline]
    pub(crate) fn has_layers(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Passes a call through the layers to the handler.
    pub(crate) async fn layered(&self, call: Call, end: &dyn End, permit: Permit<'_>) -> Result<Reply> {
        let permit = LayeredPermit::new(permit);
        let result = self.within_layers(call, end, &permit).await;
        permit.into_inner().end(result)
    }

    async fn within_layers(&self, mut call: Call, end: &dyn End, held: &dyn DetachPermits) -> Result<Reply> {
        let packing = call.unpack()?;
        let reply = Next::new(&self.layers, end).holding(held).call(call).await?;
        Ok(reply.packed(packing))
    }

    #[inline]
    fn method(&self, index: u16) -> &Method {
        // Undeclared methods share the last entry.
        &self.methods[usize::from(index).min(self.methods.len() - 1)]
    }
}

/// Adds the accepted credentials to the error of a caller that sent none.
#[cold]
fn hinted(status: Status, caller: Option<&Caller>, accepted: &Accepted) -> Status {
    match caller {
        None => Status::new(status.code(), format!("{}{}", status.message(), accepted.hint)),
        Some(_) => status,
    }
}

/// Checks the deadline again, because a call that waited may be late before it starts.
fn check_deadline(call: &Call) -> Result<()> {
    match call.cx().deadline().is_some_and(|deadline| deadline <= switchboard_core::clock::now()) {
        true => Err(Status::deadline_exceeded("the deadline passed before the call could begin")),
        false => Ok(()),
    }
}

/// A caller whose authentication is asynchronous.
struct Later {
    /// Index of the [`Auth`] that authenticates the caller.
    by: usize,
    caller: BoxFuture<'static, Result<Arc<Caller>>>,
}
