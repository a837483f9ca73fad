//! What stands between every wire and the handlers: access, auth, rates, limits, layers.
//!
//! ```text
//! connection: address lists, on_connect
//! call: deadline ─► wires ─► rules by address ─► auth ─► rules by caller ─► rates ─► concurrency, fair queue ─► layers
//! ```
//!
//! The built-in guards are plain functions over the call. What they take for a call, its `Permit`, is given back
//! when the call has ended: answered, failed, canceled, or with a stream at the end of the stream. A call that passes
//! costs no allocation; a server without guards has no chain and pays one branch.

mod access;
mod batch;
pub mod concurrency;
mod deadlines;
mod fair;
mod hooks;
mod key;
mod pattern;
mod permit;
mod rate;
mod results;
mod settings;
mod told;
mod wires;

pub use access::{Network, Rule};
pub(crate) use batch::Batch;
pub use concurrency::Concurrency;
pub use fair::Fair;
pub use pattern::matches;
pub(crate) use permit::Permit;
pub use rate::Rate;
pub(crate) use results::KEY as IDEMPOTENCY_KEY;
pub use results::ResultCache;
pub(crate) use settings::{Guarding, Guards};
pub(crate) use told::{ASKED, TOLD};
pub(crate) use wires::Wires;

use crate::{
    Call, Caller, Reply, Result, Status,
    auth::{Auth, Checked, Credentials, wrong},
    layer::{BoxFuture, End, Layer, Next},
};
use access::Check;
use batch::Kept;
use concurrency::Limiter;
use fair::Entered;
use std::sync::Arc;

/// The guards and layers of one service.
pub(crate) struct Chain {
    /// By index in the service.
    methods: Vec<Method>,
    auth: Arc<[Box<dyn Auth>]>,
    /// Whether one of them looks at messages.
    auth_reads: bool,
    /// Whether calls are looked at before they are counted.
    screens: bool,
    /// Where calls wait for a place in the first limit.
    queue: Option<Arc<fair::Queue>>,
    layers: Vec<Arc<dyn Layer>>,
}

/// What guards one method.
#[derive(Default)]
struct Method {
    /// Its full name.
    name: Box<str>,
    check: Check,
    rates: Vec<Arc<rate::Limit>>,
    /// Those of the server, the service and the method, as far as there are any; the widest first.
    limiters: Vec<Arc<Limiter>>,
    /// Those of them that let nobody in who will be late.
    in_time: Vec<Arc<Limiter>>,
}

/// What became of a call at the guards.
pub(crate) enum Begun<'chain, 'call> {
    /// It may go on.
    Go(Permit<'chain>),
    /// It may not.
    Refused(Status),
    /// That takes time.
    Wait(BoxFuture<'call, Result<Permit<'chain>>>),
}

impl Chain {
    /// Takes a call through the guards.
    #[inline]
    pub(crate) fn begin<'chain, 'call>(self: &'chain Arc<Self>, call: &'call mut Call) -> Begun<'chain, 'call>
    where
        'chain: 'call,
    {
        if self.screens {
            match self.screen(call) {
                Ok(None) => {}
                Ok(Some(later)) => return Begun::Wait(Box::pin(self.begin_later(call, later))),
                Err(status) => return Begun::Refused(status),
            }
        }
        self.admit(call)
    }

    /// The same for a call whose caller becomes known later.
    async fn begin_later<'chain>(
        self: &'chain Arc<Self>,
        call: &mut Call,
        later: Later,
    ) -> Result<Permit<'chain>> {
        let by = self.auth[later.by].name();
        let known = later.caller.await.inspect_err(|status| self.audit(call, by, status));
        call.cx_mut().set_caller(known?);
        self.known(call, by)?;
        check_deadline(call)?;
        match self.admit(call) {
            Begun::Go(permit) => Ok(permit),
            Begun::Refused(status) => Err(status),
            Begun::Wait(waiting) => waiting.await,
        }
    }

    /// Looks who calls and whether they may.
    fn screen(&self, call: &mut Call) -> Result<Option<Later>> {
        let method = self.method(call.method());
        let cx = call.cx();
        let before = cx.peer().wires.admit(cx.peer().wire).and_then(|()| method.check.before(cx));
        before.inspect_err(|status| self.audit(call, "rule", status))?;
        if self.auth_reads {
            call.unpack_message()?;
        }
        let learned = (&*method.name == "*").then(|| call.full_name());
        let name = learned.as_deref().unwrap_or(&method.name);
        for (by, auth) in self.auth.iter().enumerate() {
            match auth.check(&Credentials::new(call, name)) {
                Checked::Absent => {}
                Checked::Caller(caller) => {
                    call.cx_mut().set_caller(caller);
                    return self.known(call, auth.name()).map(|()| None);
                }
                Checked::Known(caller) => {
                    call.cx_mut().set_known_caller(caller);
                    return self.known(call, auth.name()).map(|()| None);
                }
                Checked::Wrong(why) => {
                    let status = wrong(why);
                    self.audit(call, auth.name(), &status);
                    return Err(status);
                }
                Checked::Later(caller) => return Ok(Some(Later { by, caller })),
            }
        }
        self.known(call, "none").map(|()| None)
    }

    /// Whether the caller may, now that it is known who that is.
    fn known(&self, call: &Call, by: &str) -> Result<()> {
        let checked = self.method(call.method()).check.after(call.cx().caller());
        checked.inspect_err(|status| self.audit(call, by, status))
    }

    /// Takes what the call needs of rates and limits.
    #[inline]
    fn admit<'chain, 'call>(self: &'chain Arc<Self>, call: &'call Call) -> Begun<'chain, 'call>
    where
        'chain: 'call,
    {
        let mut permit = Permit::new(self, call.method());
        let passed = match Kept::of(self, call.method()) {
            None => self.pass(call, None).map(|()| false),
            Some(mut kept) => {
                let passed = self.pass(call, Some(&mut kept));
                let is_calm = self.queue.as_ref().is_none_or(|queue| queue.is_calm());
                let lent = if passed.is_ok() && is_calm { kept.lend_places(self) } else { None };
                if is_calm {
                    kept.keep();
                } else {
                    kept.give_back();
                }
                passed.map(|()| lent.inspect(|timed| permit.entered_all(*timed)).is_some())
            }
        };
        match passed {
            Ok(false) => {}
            Ok(true) => return Begun::Go(permit),
            Err(status) => return Begun::Refused(status),
        }
        if let Some(queue) = &self.queue {
            match queue.enter(call.cx()) {
                Ok(Entered::Placed(place)) => permit.entered(place),
                Ok(Entered::Waits(waiting)) => {
                    return Begun::Wait(Box::pin(async move {
                        permit.entered(waiting.admitted().await?);
                        check_deadline(call)?;
                        permit.enter()?;
                        Ok(permit)
                    }));
                }
                Err(status) => return Begun::Refused(status),
            }
        }
        match permit.enter() {
            Ok(()) => Begun::Go(permit),
            Err(status) => Begun::Refused(status),
        }
    }

    /// Takes what the call needs of rates, and looks whether it has the time.
    #[inline]
    fn pass(&self, call: &Call, kept: Option<&mut Kept>) -> Result<()> {
        let method = self.method(call.method());
        match kept {
            Some(kept) => kept.take_tokens(self, call)?,
            None => method.rates.iter().try_for_each(|rate| rate.take(call, None))?,
        }
        method.in_time.iter().try_for_each(|limiter| limiter.check_time(call.cx().deadline()))
    }

    /// Writes down that a call was denied, and why.
    #[cold]
    fn audit(&self, call: &Call, by: &str, status: &Status) {
        let cx = call.cx();
        tracing::warn!(
            target: "switchboard::audit",
            method = &*self.method(call.method()).name,
            peer = cx.peer().address,
            wire = cx.peer().wire,
            caller = cx.caller().map(|caller| &caller.name[..]),
            by,
            code = status.code().name(),
            "denied: {}",
            status.message()
        );
    }

    /// Whether there are layers around the handler.
    #[inline]
    pub(crate) fn has_layers(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Takes a call through the layers to the handler.
    pub(crate) async fn layered(&self, mut call: Call, end: &dyn End) -> Result<Reply> {
        let packing = call.unpack()?;
        let reply = Next::new(&self.layers, end).call(call).await?;
        Ok(reply.packed(packing))
    }

    #[inline]
    fn method(&self, index: u16) -> &Method {
        // Learned methods share one.
        &self.methods[usize::from(index).min(self.methods.len() - 1)]
    }
}

/// A call that had to wait may be late before it begins.
fn check_deadline(call: &Call) -> Result<()> {
    match call.cx().deadline().is_some_and(|deadline| deadline <= crate::clock::now()) {
        true => Err(Status::deadline_exceeded("the deadline passed before the call could begin")),
        false => Ok(()),
    }
}

/// A caller who becomes known later.
struct Later {
    /// Which auth finds out.
    by: usize,
    caller: BoxFuture<'static, Result<Arc<Caller>>>,
}
