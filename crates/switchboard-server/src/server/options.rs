//! Options of a server for its operation: logs, admin pages, hooks, and shutdown.

use super::{Server, lifecycle::Hooks};
use std::{future::Future, sync::PoisonError, time::Duration};
use switchboard_core::Flag;
use switchboard_net::Address;

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

    /// Takes over the TCP listeners of the server that waits at this path, if there is one, and waits at the
    /// path for the next server: a new version of a program replaces the old one without rejecting
    /// connections. When the new server is ready, the old one [stops](super::Running::handed_over). Both must
    /// listen at the same addresses, in the same notation; addresses that the old server does not have are
    /// bound as usual. Only processes of the same user, and of root, are served.
    #[cfg(feature = "handover")]
    pub fn handover(mut self, path: impl Into<std::path::PathBuf>) -> Server {
        self.handover = Some(path.into());
        self
    }

    /// Sets how long a server continues to serve at the start of a shutdown, so that registries and load
    /// balancers can redirect callers. Default zero.
    pub fn notice(mut self, time: Duration) -> Server {
        self.hooks().notice = time;
        self
    }

    pub(super) fn hooks(&mut self) -> &mut Hooks {
        self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
