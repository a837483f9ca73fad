//! Layers: asynchronous code of the application around every call, for every wire, on clients and servers.
//!
//! ```text
//! wire ─► built-in guards ─► first layer ─► … ─► last layer ─► handler
//! ```
//!
//! A layer sees the call before its messages are decoded, may change or reject it, and gets the reply on the way back.
//! Streams pass a layer as streams: [`Call::each_message`] and [`Reply::each_message`] observe their messages one by
//! one.
//!
//! `Channel::layer` puts layers around the calls of a channel; they run before an endpoint is
//! selected and a connection is taken.
//!
//! A layer costs one allocation per call, and the first layer one more for the handler behind it; a server without
//! layers pays nothing.

mod dump;
mod sample;

pub use dump::{Dump, Dumped};
#[doc(hidden)]
pub use sample::Sample;

use crate::{Call, Reply, Result};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Code around every call of a server or a channel, see `Server::layer` and
/// `Channel::layer`.
///
/// ```
/// use switchboard::{Call, Reply, Result, layer::{BoxFuture, Layer, Next}};
///
/// struct Timed;
///
/// impl Layer for Timed {
///     fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
///         Box::pin(async move {
///             let (began, method) = (std::time::Instant::now(), call.cx().method().name);
///             let reply = next.call(call).await;
///             println!("{method}: {} after {:?}", reply.is_ok(), began.elapsed());
///             reply
///         })
///     }
/// }
///
/// let server = switchboard::Server::new().layer(Timed);
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Name in `Server::layers`; by default the name of the type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Handles a call, usually by calling [`next`](Next::call) and returning its reply.
    ///
    /// The future is dropped at its next await when the caller cancels, its deadline passes or its connection ends.
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>>;
}

impl<L: Layer> Layer for Arc<L> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        (**self).call(call, next)
    }
}

/// Creates a layer from a function.
///
/// ```
/// use switchboard::{Status, layer};
///
/// // Rejects messages that are too large for this service.
/// let small = layer::from_fn("small", |call, next| {
///     Box::pin(async move {
///         match call.message() {
///             Some(message) if message.len() > 1000 => Err(Status::invalid_argument("too large")),
///             _ => next.call(call).await,
///         }
///     })
/// });
/// let server = switchboard::Server::new().layer(small);
/// ```
pub fn from_fn<F>(name: &'static str, call: F) -> FromFn<F>
where
    F: for<'a> Fn(Call, Next<'a>) -> BoxFuture<'a, Result<Reply>> + Send + Sync + 'static,
{
    FromFn { name, call }
}

/// Layer that [`from_fn`] creates.
#[derive(Clone)]
pub struct FromFn<F> {
    name: &'static str,
    call: F,
}

impl<F> Layer for FromFn<F>
where
    F: for<'a> Fn(Call, Next<'a>) -> BoxFuture<'a, Result<Reply>> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.name
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        (self.call)(call, next)
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromFn").field(&self.name).finish()
    }
}

/// The layers after this one, followed by the handler or the channel. Copy it to try a call again, with
/// [`Call::try_clone`].
#[derive(Clone, Copy)]
pub struct Next<'a> {
    layers: &'a [Arc<dyn Layer>],
    end: &'a dyn End,
    /// The permits that the call holds in limits.
    held: Option<&'a dyn DetachPermits>,
}

/// The handler or the channel, after the last layer.
#[doc(hidden)]
pub trait End: Send + Sync {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>>;
    /// Returns a shared handle for a call that outlives its connection.
    fn shared(&self) -> Arc<dyn End>;
}

/// Detaches the permits of a call that outlives its caller.
#[doc(hidden)]
pub trait DetachPermits: Sync {
    /// Takes the permits, which `self` then no longer releases.
    fn take(&self) -> Option<Box<dyn DetachedPermits>>;
}

/// Permits of a call whose caller is gone; dropping them releases them.
#[doc(hidden)]
pub trait DetachedPermits: Send {
    /// Releases the permits of a call that has ended, successfully or not.
    fn end(self: Box<Self>, is_ok: bool);
}

impl<'a> Next<'a> {
    #[doc(hidden)]
    pub fn new(layers: &'a [Arc<dyn Layer>], end: &'a dyn End) -> Next<'a> {
        Next { layers, end, held: None }
    }

    /// Adds the permits that the call holds in limits; they move with a [detached](Self::detached) call.
    #[doc(hidden)]
    pub fn holding(self, held: &'a dyn DetachPermits) -> Next<'a> {
        Next { held: Some(held), ..self }
    }

    /// Handles the call. Dropping the future cancels it.
    ///
    /// # Errors
    /// The errors of the following layers and of the handler.
    pub fn call(self, call: Call) -> BoxFuture<'a, Result<Reply>> {
        match self.layers.split_first() {
            Some((first, layers)) => first.call(call, Next { layers, ..self }),
            None => self.end.call(call),
        }
    }

    /// Handles a call that continues after the end of its connection. It holds its permits until it has ended.
    #[doc(hidden)]
    pub fn detached(self, call: Call) -> BoxFuture<'static, Result<Reply>> {
        let (layers, end) = (self.layers.to_vec(), self.end.shared());
        let held = self.held.and_then(DetachPermits::take);
        Box::pin(async move {
            let result = Next::new(&layers, &*end).call(call).await;
            if let Some(held) = held {
                held.end(result.is_ok());
            }
            result
        })
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers.iter().map(|layer| layer.name())).finish()
    }
}
