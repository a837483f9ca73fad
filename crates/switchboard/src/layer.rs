//! Layers: code of the application around every call, async, the same for every wire, on both sides.
//!
//! ```text
//! wire ─► built-in guards ─► first layer ─► … ─► last layer ─► handler
//! ```
//!
//! A layer sees the call before its messages are read as types, may change or refuse it, and gets the reply back on
//! its way out. What streams passes it as a stream: messages are seen one by one with [`Call::each_message`] and
//! [`Reply::each_message`].
//!
//! [`Channel::layer`](crate::Channel::layer) puts the same layers around the calls of a channel; they see the call
//! before a server is chosen for it and a connection is taken.
//!
//! A layer costs one allocation for each call, and the first one another for the handler behind it; a server
//! without layers pays nothing.

mod dump;
mod mirror;
mod sample;

pub use dump::{Dump, Dumped};
pub use mirror::Mirror;
use sample::Sample;

use crate::{Call, Reply, Result};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Code around every call of a server or a channel, see [`Server::layer`](crate::Server::layer) and
/// [`Channel::layer`](crate::Channel::layer).
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
    /// For people, in [`Server::layers`](crate::Server::layers); by default the name of the type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Answers a call, usually with what [`next`](Next::call) answers.
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

/// A layer of a function.
///
/// ```
/// use switchboard::{Status, layer};
///
/// // Refuses what is too large for this service.
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

/// What [`from_fn`] makes.
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

/// What comes after a layer: the layers further in, and the handler or the channel. A copy of it is for another try,
/// with [`Call::again`].
#[derive(Clone, Copy)]
pub struct Next<'a> {
    layers: &'a [Arc<dyn Layer>],
    end: &'a dyn End,
}

/// What comes after the last layer.
pub(crate) trait End: Send + Sync {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>>;
    /// The same, for a call that outlives its connection.
    fn shared(&self) -> Arc<dyn End>;
}

impl<'a> Next<'a> {
    pub(crate) fn new(layers: &'a [Arc<dyn Layer>], end: &'a dyn End) -> Next<'a> {
        Next { layers, end }
    }

    /// Answers the call. To drop the future is to cancel what it does.
    ///
    /// # Errors
    /// Those of the layers further in and of the handler.
    pub fn call(self, call: Call) -> BoxFuture<'a, Result<Reply>> {
        match self.layers.split_first() {
            Some((first, layers)) => first.call(call, Next { layers, end: self.end }),
            None => self.end.call(call),
        }
    }

    /// The same for a call that goes on whatever becomes of its connection.
    pub(crate) fn detached(self, call: Call) -> BoxFuture<'static, Result<Reply>> {
        let (layers, end) = (self.layers.to_vec(), self.end.shared());
        Box::pin(async move { Next::new(&layers, &*end).call(call).await })
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.layers.iter().map(|layer| layer.name())).finish()
    }
}
