//! The guards and layers of a server.

use super::{Running, Server};
use crate::{
    Error, Flag, Layer, Peer, Result,
    auth::Auth,
    guard::{Concurrency, Fair, Network, Rate, ResultCache, Rule, Wires, concurrency::ConcurrencyStats},
};
use std::{sync::Arc, time::Duration};

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

    /// Lets calls over the [concurrency limit](Self::concurrency) of the server wait for a moment, and gives each
    /// tenant its share of the places that become free. How urgent a call is among those of its tenant is said by the
    /// metadata `switchboard-priority`: `critical`, `high`, `normal` or `low`.
    pub fn fair(mut self, fair: Fair) -> Server {
        self.guards.fair = Some(fair);
        self
    }

    /// The same as [`concurrency`](Self::concurrency) for all calls of one service, `package.Service`.
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

    /// Limits how many calls may come in a time; what is above is refused with `ResourceExhausted` and the time after
    /// which to try again. Rates are looked at in the order in which they were added.
    pub fn rate(mut self, rate: Rate) -> Server {
        self.guards.rates.push(rate);
        self
    }

    /// Asks every call who makes it. Several are asked in the order in which they were added, until one finds
    /// credentials of its kind. Calls without credentials are refused, but where a [rule](Self::rule) says otherwise.
    ///
    /// Health stays open to all, reflection is closed unless a rule makes `grpc.reflection.*` public.
    pub fn auth(mut self, auth: impl Auth) -> Server {
        self.guards.auth.push(Box::new(auth));
        self
    }

    /// Says who may call which methods; of several rules for a method the first holds.
    pub fn rule(mut self, rule: Rule) -> Server {
        self.guards.rules.push(rule);
        self
    }

    /// Lets only peers connect whose address is in one of these networks, `10.0.0.0/8`, or is one of these addresses.
    /// Others are closed at once. Peers without an address, on Unix sockets, always may.
    pub fn allow_addresses(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Server {
        let allowed = self.networks(networks);
        self.guards.addresses.allowed.extend(allowed);
        self
    }

    /// Closes connections of these networks or addresses at once, also of those that are allowed.
    pub fn deny_addresses(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Server {
        let denied = self.networks(networks);
        self.guards.addresses.denied.extend(denied);
        self
    }

    fn networks(&mut self, texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<Network> {
        let parsed = texts.into_iter().map(|text| text.into().parse());
        let parsed: Result<Vec<_>, Error> = parsed.collect();
        parsed.unwrap_or_else(|mistake| {
            self.mistakes.push(mistake);
            Vec::new()
        })
    }

    /// Keeps what methods answer to calls with an `idempotency-key`, so that one that is sent again under the same key
    /// runs once. Such a call runs to its end whatever becomes of its caller, and counts in limits only while that one
    /// waits. Kept in this process: one that is started again knows nothing of it. Costs
    /// the other calls of the services what a [layer](Self::layer) does.
    pub fn result_cache(mut self, cache: ResultCache) -> Server {
        self.guards.caches.push(cache);
        self
    }

    /// The longest that a call may take, whatever deadline its caller sets, or if it sets none. A stream too.
    pub fn deadline_max(mut self, most: Duration) -> Server {
        self.guards.deadline = Some(most);
        self
    }

    /// The same, as the flag says in milliseconds when a call comes; 0 is no cap. One that is set by
    /// [`deadline_max`](Self::deadline_max) or for a method goes before it.
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

    /// The same for these methods, `package.Service/Method`, in which a star stands for anything; shorter or longer
    /// than that of the server.
    pub fn method_deadline_max(mut self, methods: impl Into<String>, most: Duration) -> Server {
        self.guards.deadlines.push((methods.into(), most));
        self
    }

    /// Serves the method `name` under `alias` too, both `package.Service/Method`: for callers that know it by a name
    /// that it had before.
    pub fn alias(mut self, alias: impl Into<String>, name: impl Into<String>) -> Server {
        self.guards.aliases.push((alias.into(), name.into()));
        self
    }

    /// Serves only these methods, `package.Service/Method`, in which a star stands for anything, of all that its
    /// services have; the others are unknown to callers. Descriptions that reflection gives still name them.
    pub fn expose(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.exposed.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Serves these methods to nobody, exposed or not.
    pub fn hide(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.guards.hidden.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Answers calls on these wires only: `baidu_std`, `connect`, `erpc`, `grpc`, `grpc-web`, `http-json`, `hulu`,
    /// `jsonrpc`, `kiss`, `native`, `rpcx`, `sofa`, `thrift`. A listener may name fewer, `tcp://0.0.0.0:8080?wires=grpc,native`.
    pub fn wires<'a>(mut self, wires: impl IntoIterator<Item = &'a str>) -> Server {
        match Wires::of(wires) {
            Ok(wires) => self.guards.wires = Some(wires),
            Err(mistake) => self.mistakes.push(mistake),
        }
        self
    }

    /// Runs when a connection begins, after its handshake and before its first call; an error closes it. Several run
    /// in the order in which they were added, in the connection's own task: they must not block.
    pub fn on_connect(mut self, hook: impl Fn(&Peer) -> Result<()> + Send + Sync + 'static) -> Server {
        self.guards.hooks.connect.push(Box::new(hook));
        self
    }

    /// Runs when a connection ends that the hooks of [`on_connect`](Self::on_connect) let begin, however it ends.
    pub fn on_disconnect(mut self, hook: impl Fn(&Peer) + Send + Sync + 'static) -> Server {
        self.guards.hooks.disconnect.push(Box::new(hook));
        self
    }
}

impl Running {
    /// The concurrency limits with what they count: that of the server, of services, of methods.
    pub fn concurrency(&self) -> Vec<ConcurrencyStats> {
        self.shared.guarding.concurrency()
    }
}
