//! Setters of what runs around each call and connection: values, concurrency, rates, access and hooks.

use crate::Server;
use switchboard_auth::auth::Auth;
use switchboard_core::{Error, Peer, Result};
use switchboard_guard::guard::{Concurrency, Fair, Network, Rate, ResultCache, Rule};

/// Values and results of calls.
impl Server {
    /// Returns the guards and layers that a call passes on its way to its handler, the outermost first.
    pub fn layers(&self) -> Vec<String> {
        self.guards.order()
    }

    /// Adds a value that every handler and layer finds in the [extensions](switchboard_core::Cx::extensions) of its
    /// calls: a pool of database connections, a configuration. A value of the same type replaces the earlier one.
    ///
    /// ```
    /// use switchboard::{Cx, Result, Server, Status};
    ///
    /// struct Prices(Vec<u64>);
    ///
    /// fn price(cx: &Cx, item: usize) -> Result<u64> {
    ///     let prices = cx.extensions().get::<Prices>().expect("the server has it");
    ///     prices.0.get(item).copied().ok_or_else(|| Status::not_found(format!("no item {item}")))
    /// }
    ///
    /// let server = Server::new().extension(Prices(vec![100, 250]));
    /// ```
    pub fn extension<T: Send + Sync + 'static>(mut self, value: T) -> Server {
        self.extensions.insert(value);
        self
    }

    /// Stores the responses to calls with an `idempotency-key`, so that a call that is repeated with the same
    /// key runs once. Such a call runs to its end even if its caller cancels, and counts in limits until
    /// then. The cache is in memory: a restarted process starts with an empty one. All [layers](Self::layer)
    /// see every call before the cache does: a layer that authenticates callers must set their name with
    /// [`Cx::set_caller`](switchboard_core::Cx::set_caller), otherwise callers without distinct credentials share their
    /// keys. The other calls of the services pay the cost of a layer.
    pub fn result_cache(mut self, cache: ResultCache) -> Server {
        self.guards.caches.push(cache);
        self
    }
}

/// Concurrency and rates of calls.
impl Server {
    /// Limits the number of concurrent calls of the whole server. Further calls are rejected before they
    /// start, with `ResourceExhausted` and the time after which to retry. A call counts until its last reply
    /// is produced.
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

    /// Lets calls above the [concurrency limit](Self::concurrency) of the server wait for a short time, and
    /// gives each tenant its share of the released permits. The metadata `switchboard-priority` sets the
    /// priority of a call among those of its tenant: `critical`, `high`, `normal` or `low`.
    pub fn fair(mut self, fair: Fair) -> Server {
        self.guards.fair = Some(fair);
        self
    }

    /// Sets a limit like [`concurrency`](Self::concurrency) for all calls of one service, `package.Service`.
    pub fn service_concurrency(
        mut self,
        service: impl Into<String>,
        limit: impl Into<Concurrency>,
    ) -> Server {
        self.guards.services.push((service.into(), limit.into()));
        self
    }

    /// Sets a limit like [`concurrency`](Self::concurrency) for each method that matches the pattern,
    /// `package.Service/Method`, in which a star matches any text.
    pub fn method_concurrency(mut self, methods: impl Into<String>, limit: impl Into<Concurrency>) -> Server {
        self.guards.methods.push((methods.into(), limit.into()));
        self
    }

    /// Limits the rate of calls; further calls are rejected with `ResourceExhausted` and the time after which
    /// to retry. Rates are checked in the order in which they were added.
    pub fn rate(mut self, rate: Rate) -> Server {
        self.guards.rates.push(rate);
        self
    }
}

/// Access: who may call, and from where.
impl Server {
    /// Authenticates every call. Several are tried in the order in which they were added, until one finds
    /// credentials of its kind. Calls without credentials are rejected unless a [rule](Self::rule) makes
    /// their method public.
    ///
    /// Health checks need no credentials; reflection is closed unless a rule makes `grpc.reflection.*`
    /// public.
    pub fn auth(mut self, auth: impl Auth) -> Server {
        self.guards.auth.push(Box::new(auth));
        self
    }

    /// Adds an access rule; the first matching rule of a method applies.
    pub fn rule(mut self, rule: Rule) -> Server {
        self.guards.rules.push(rule);
        self
    }

    /// Accepts connections only from these networks, `10.0.0.0/8`, or addresses. Others are closed at once.
    /// Peers without an address, on Unix sockets, are always accepted.
    pub fn allow_addresses(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Server {
        let allowed = self.networks(networks);
        self.guards.addresses.allowed.extend(allowed);
        self
    }

    /// Closes connections from these networks or addresses at once, even if they are allowed.
    pub fn deny_addresses(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Server {
        let denied = self.networks(networks);
        self.guards.addresses.denied.extend(denied);
        self
    }

    fn networks(&mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<Network> {
        let parsed = texts.into_iter().map(|text| text.into().parse());
        let parsed: Result<Vec<_>, Error> = parsed.collect();
        parsed.unwrap_or_else(|error| {
            self.config_errors.push(error);
            Vec::new()
        })
    }
}

/// Hooks for connections.
impl Server {
    /// Adds a hook that runs when a connection starts, after its handshake and before its first call; an
    /// error closes the connection. Hooks run in the order in which they were added, in the connection's
    /// task: they must not block.
    pub fn on_connect(mut self, hook: impl Fn(&Peer) -> Result<()> + Send + Sync + 'static) -> Server {
        self.guards.hooks.connect.push(Box::new(hook));
        self
    }

    /// Adds a hook that runs at the end of every connection that the [`on_connect`](Self::on_connect) hooks
    /// accepted.
    pub fn on_disconnect(mut self, hook: impl Fn(&Peer) + Send + Sync + 'static) -> Server {
        self.guards.hooks.disconnect.push(Box::new(hook));
        self
    }
}
