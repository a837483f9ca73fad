//! The guards and layers of a server.

use super::{Running, Server};
use crate::{
    Layer,
    guard::{Concurrency, concurrency::ConcurrencyStats},
};
use std::sync::Arc;

impl Server {
    /// Puts a layer around every call, inside the layers that were added before.
    pub fn layer(mut self, layer: impl Layer) -> Server {
        self.guards.layers.push(Arc::new(layer));
        self
    }

    /// What a call passes on its way to its handler, the outermost first.
    pub fn layers(&self) -> Vec<String> {
        self.guards.order()
    }

    /// How many calls may run at once in the whole server; more are refused before they begin, with
    /// `ResourceExhausted` and the time after which to try again. A call runs until its last reply is made.
    ///
    /// ```
    /// let server = switchboard::Server::new()
    ///     .concurrency(500)
    ///     .method_concurrency("demo.Reports/*", 8);
    /// ```
    pub fn concurrency(mut self, limit: impl Into<Concurrency>) -> Server {
        self.guards.concurrency = Some(limit.into());
        self
    }

    /// The same for all calls of one service, `package.Service`.
    pub fn service_concurrency(
        mut self,
        service: impl Into<String>,
        limit: impl Into<Concurrency>,
    ) -> Server {
        self.guards.services.push((service.into(), limit.into()));
        self
    }

    /// The same for each of these methods alone, `package.Service/Method`, in which a star stands for anything.
    pub fn method_concurrency(mut self, methods: impl Into<String>, limit: impl Into<Concurrency>) -> Server {
        self.guards.methods.push((methods.into(), limit.into()));
        self
    }
}

impl Running {
    /// The concurrency limits with what they count: that of the server, of services, of methods.
    pub fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.shared.guarding.concurrency()
    }
}
