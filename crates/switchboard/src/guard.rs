//! What stands between every wire and the handlers: access, limits, layers.
//!
//! ```text
//! wire ─► concurrency limits (server, service, method) ─► layers ─► handler
//! ```
//!
//! The built-in guards are plain functions over the call. What they take for a call, its [`Permit`], is given back
//! when the call has ended: answered, failed, canceled, or with a stream at the end of the stream. A call that passes
//! costs no allocation and no lock; a server without guards has no chain and pays one branch.

pub mod concurrency;
mod pattern;
mod permit;
mod settings;

pub use concurrency::Concurrency;
pub(crate) use permit::Permit;
pub(crate) use settings::{Guarding, Guards};

use crate::{
    Call, Reply, Result, Status,
    layer::{BoxFuture, End, Layer, Next},
};
use concurrency::Limiter;
use std::sync::Arc;

/// The guards and layers of one service.
pub(crate) struct Chain {
    /// By index in the service.
    methods: Vec<Method>,
    layers: Vec<Arc<dyn Layer>>,
}

/// What guards one method.
#[derive(Default)]
struct Method {
    /// Those of the server, the service and the method, as far as there are any; the widest first.
    limiters: Vec<Arc<Limiter>>,
}

/// What became of a call at the guards.
pub(crate) enum Begun<'chain, 'call> {
    /// It may go on.
    Go(Permit<'chain>),
    /// It may not.
    Refused(Status),
    /// That takes time.
    #[expect(dead_code, reason = "no guard waits yet")]
    Wait(BoxFuture<'call, Result<Permit<'chain>>>),
}

impl Chain {
    /// Takes a call through the guards.
    #[inline]
    pub(crate) fn begin<'chain, 'call>(self: &'chain Arc<Self>, call: &'call mut Call) -> Begun<'chain, 'call>
    where
        'chain: 'call,
    {
        let mut permit = Permit::new(self, call.method());
        match permit.enter() {
            Ok(()) => Begun::Go(permit),
            Err(status) => Begun::Refused(status),
        }
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

    fn method(&self, index: u16) -> &Method {
        &self.methods[usize::from(index)]
    }
}
