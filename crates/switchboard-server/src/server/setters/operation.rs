//! Setters for the operation of a server: logs, admin pages, hooks, registries and shutdown.

use crate::{
    Server,
    server::{lifecycle::Hooks, registration::RegistrationTemplate},
};
use std::{future::Future, sync::Arc, sync::PoisonError, time::Duration};
use switchboard_core::Flag;
use switchboard_discovery::discover::{Instance, Registry};
use switchboard_net::Address;

/// Observation: logs, flags and admin pages.
impl Server {
    /// Logs one call in `every` at its end, as a `tracing` event with the target `switchboard::access` and
    /// the level `info`: method, wire, peer, caller, code, time, bytes, trace. 0, the default, turns the log
    /// off. The value is also a [flag](switchboard_core::Flag).
    pub fn access_log(self, every: u32) -> Server {
        self.access.every.preset(every.into());
        self
    }

    /// Logs every call that takes at least this long, with the target `switchboard::slow` and the level
    /// `warn`. A stream is measured by the time from its last request message before the first reply message
    /// to that reply, and by the longest turn of its handler. Zero, the default, turns the log off; values
    /// below a millisecond count as one.
    pub fn slow_call(self, took: Duration) -> Server {
        let least = u64::from(!took.is_zero());
        self.access.slow.preset((took.as_millis() as u64).max(least));
        self
    }

    /// Adds a number of the application to the flags that can change while the server runs, on the admin page
    /// `/flags`.
    pub fn flag(mut self, flag: &Flag) -> Server {
        self.flags.push(flag.clone());
        self
    }

    /// Serves admin pages on a separate listener: `tcp://127.0.0.1:9090`, or an
    /// [`Admin`](crate::admin::Admin) with further settings. They are never served on the addresses of the
    /// services.
    ///
    /// ```
    /// let server = switchboard::Server::new().admin("tcp://127.0.0.1:9090");
    /// ```
    #[cfg(feature = "http")]
    pub fn admin(mut self, admin: impl Into<crate::admin::Admin>) -> Server {
        self.admin = Some(admin.into());
        self
    }

    /// Also serves `grpc.channelz.v1.Channelz`, unless a service of that name was added: it shows this
    /// server, its listeners, and every connection with its addresses and counters.
    ///
    /// Off by default, as in every gRPC implementation: a caller of this service sees the other callers.
    /// Connections count their calls and messages only if it is on.
    #[cfg(feature = "channelz")]
    pub fn channelz(mut self) -> Server {
        self.channelz = true;
        self
    }
}

/// Start and stop: hooks, and the sockets of a predecessor.
impl Server {
    /// Adds a hook that runs before the server is ready, for example to fill caches or open connections.
    /// Meanwhile the server listens and serves calls, but health checks return `NOT_SERVING`. If a hook
    /// fails, the server does not start. Hooks run one after the other.
    pub fn warm_up<F>(mut self, work: impl FnOnce() -> F + Send + 'static) -> Server
    where
        F: Future<Output = switchboard_core::Result<()>> + Send + 'static,
    {
        self.hooks().warm_up.push(Box::new(|| Box::pin(work())));
        self
    }

    /// Adds a hook that runs once the server is ready, with the bound addresses. If a hook fails, the server
    /// does not start. Hooks run one after the other.
    pub fn on_start<F>(mut self, hook: impl FnOnce(Vec<Address>) -> F + Send + 'static) -> Server
    where
        F: Future<Output = switchboard_core::Result<()>> + Send + 'static,
    {
        self.hooks().start.push(Box::new(|addresses| Box::pin(hook(addresses))));
        self
    }

    /// Adds a hook that runs at the start of a shutdown, before anything is rejected. Hooks run concurrently.
    pub fn on_stop<F>(mut self, hook: impl FnOnce() -> F + Send + 'static) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.hooks().stop.push(Box::new(|| Box::pin(hook())));
        self
    }

    /// Sets how long a server continues to serve at the start of a shutdown, so that registries and load
    /// balancers can redirect callers. Default zero.
    pub fn notice(mut self, time: Duration) -> Server {
        self.hooks().notice = time;
        self
    }

    /// Takes over the TCP listeners of the server that waits at this path, if there is one, and waits at the
    /// path for the next server: a new version of a program replaces the old one without rejecting
    /// connections. When the new server is ready, the old one [stops](crate::Running::handed_over). Both must
    /// listen at the same addresses, in the same notation; addresses that the old server does not have are
    /// bound as usual. Only processes of the same user, and of root, are served.
    #[cfg(feature = "handover")]
    pub fn handover(mut self, path: impl Into<std::path::PathBuf>) -> Server {
        self.handover = Some(path.into());
        self
    }

    fn hooks(&mut self) -> &mut Hooks {
        self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registries.
impl Server {
    /// Registers this server once it listens, keeps the registration while it serves, and removes it at the
    /// start of a drain.
    ///
    /// Empty fields of `instance` are filled in: without a service, each added service is registered; without
    /// an address, the first listener's address is used; the id is the address. Weight, group, zone, version
    /// and tags are used as given. An unavailable registry does not delay the start: registration is retried
    /// until it succeeds. A listener on every address of the machine, `0.0.0.0`, needs an address in the
    /// instance.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use switchboard::{Server, discover::{Fixed, Instance}};
    /// # let registry = Arc::new(Fixed::new([]));
    /// let server = Server::new().register(registry, Instance::default().zone("eu-1a").weight(200));
    /// ```
    pub fn register(mut self, registry: Arc<dyn Registry>, instance: Instance) -> Server {
        self.templates.push(RegistrationTemplate { registry, template: instance });
        self
    }

    /// Sets how long a drain waits for callers to learn of it from the registry before the server sends drain
    /// notices on its connections; default 1 s. In the first half of this time the server is registered as
    /// draining, in the second half it is deregistered.
    pub fn registration_notice(mut self, notice: Duration) -> Server {
        self.registration_notice = notice;
        self
    }
}
