//! Guards and layers of a server.

use super::{Running, Server};
use std::{sync::Arc, time::Duration};
use switchboard_auth::auth::Auth;
use switchboard_core::{Error, Flag, Layer, Peer, Result};
use switchboard_guard::guard::{
    Concurrency, Fair, Network, Rate, ResultCache, Rule, concurrency::ConcurrencyStats,
};
use switchboard_wire::{WireId, WireSet, WireSpec};

impl Server {
    /// Wraps every call in a layer, inside the layers that were added before.
    pub fn layer(mut self, layer: impl Layer) -> Server {
        self.guards.layers.push(Arc::new(layer));
        self
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

    /// Returns the guards and layers that a call passes on its way to its handler, the outermost first.
    pub fn layers(&self) -> Vec<String> {
        self.guards.order()
    }

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

    /// Refuses requests that have fields unknown to their types with `InvalidArgument` and the path of the first such
    /// field; the default is to ignore them. Applies to JSON and MessagePack on all wires; the other codecs write
    /// fields without names. The metadata `switchboard-strict-fields` of a call, `true` or `false`, takes precedence.
    ///
    /// Does not find unknown fields behind `#[serde(flatten)]` and in untagged and internally tagged enums. Decoding a
    /// strict request takes up to twice the time.
    ///
    /// ```
    /// let server = switchboard::Server::new().strict_fields();
    /// ```
    pub fn strict_fields(mut self) -> Server {
        self.strict_fields = true;
        self
    }

    /// Limits the duration of calls and streams, regardless of the caller's deadline.
    pub fn deadline_max(mut self, most: Duration) -> Server {
        self.guards.deadline = Some(most);
        self
    }

    /// Limits the duration of calls to the current value of the flag, in milliseconds; 0 is no limit. A limit
    /// that is set by [`deadline_max`](Self::deadline_max) or for a method takes precedence.
    ///
    /// ```
    /// use switchboard::{Flag, Server, limits::Unit};
    ///
    /// let most = Flag::new("deadline_max", Unit::Milliseconds, 30_000, 0..=3_600_000, "the longest call");
    /// let server = Server::new().flag(&most).deadline_max_by_flag(&most);
    /// ```
    pub fn deadline_max_by_flag(mut self, most: &Flag) -> Server {
        self.guards.deadline_flag = Some(most.clone());
        self
    }

    /// Limits the duration of calls to the matching methods, `package.Service/Method`, in which a star
    /// matches any text; shorter or longer than the limit of the server.
    pub fn method_deadline_max(mut self, methods: impl Into<String>, most: Duration) -> Server {
        self.guards.deadlines.push((methods.into(), most));
        self
    }

    /// Also serves the method `name` under `alias`, both `package.Service/Method`: for callers that use a
    /// previous name of the method.
    pub fn alias(mut self, alias: impl Into<String>, name: impl Into<String>) -> Server {
        self.guards.aliases.push((alias.into(), name.into()));
        self
    }

    /// Serves only the matching methods, `package.Service/Method`, in which a star matches any text; other
    /// methods are unknown to callers. Descriptions from reflection still list them.
    pub fn expose(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.exposed.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Excludes the matching methods from serving, even if they are exposed.
    pub fn hide(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.hidden.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Accepts calls only on these wires, by their names in [`WIRES`](switchboard_core::wire::WIRES). A listener can
    /// restrict
    /// them further, `tcp://0.0.0.0:8080?wires=grpc,native`. The server closes connections of other wires as soon
    /// as it has detected them. Wires that were added before with [`wire`](Self::wire) are included only by name.
    pub fn wires<'a>(mut self, wires: impl IntoIterator<Item = &'a str>) -> Server {
        match WireSet::of_names(wires) {
            Ok(wires) => {
                self.guards.wires = Some(wires);
                self.guards.added_wires = WireSet::NONE;
            }
            Err(why) => self.config_errors.push(Error::config(format!("wires: {why}"))),
        }
        self
    }

    /// Adds a wire to those that the server accepts: one of [`WIRES`](switchboard_core::wire::WIRES), or one of the
    /// application,
    /// which is registered in this process. [`start`](Server::start) fails on a wire that cannot be registered, and on
    /// one that has no server.
    pub fn wire(mut self, spec: &'static WireSpec) -> Server {
        match WireId::register(spec) {
            Ok(wire) if spec.server.is_some() || spec.capabilities.http => {
                self.guards.added_wires.insert(wire);
            }
            Ok(wire) => {
                let text = format!(
                    "wire: listeners cannot accept {wire}: it has no server; plugins are added with `plugin`"
                );
                self.config_errors.push(Error::config(text));
            }
            Err(why) => self.config_errors.push(Error::config(why)),
        }
        self
    }

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

impl Running {
    /// Returns the statistics of the concurrency limits of the server, its services and its methods.
    pub fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.shared.guarding.concurrency()
    }
}
