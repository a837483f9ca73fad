//! The options of a server that concern its operation: logs, admin pages, hooks, and its end.

use super::{Server, lifecycle::Hooks};
use crate::{Address, Flag};
use std::{future::Future, sync::PoisonError, time::Duration};

impl Server {
    /// Logs one call in `every`, when it has ended, as an event of `tracing` with the target `switchboard::access` and
    /// the level `info`: method, wire, peer, code, time, bytes, trace. 0, the default, logs none. It is also a
    /// [flag](crate::Flag).
    pub fn access_log(self, every: u32) -> Server {
        self.access.every.preset(every.into());
        self
    }

    /// Logs every call that takes at least so long, with the target `switchboard::slow` and the level `warn`. Zero, the
    /// default, logs none; what is below a millisecond counts as one.
    pub fn slow_call(self, took: Duration) -> Server {
        let least = u64::from(!took.is_zero());
        self.access.slow.preset((took.as_millis() as u64).max(least));
        self
    }

    /// Adds a number of the application to those that may be changed while the server runs, on the admin page `/flags`.
    pub fn flag(mut self, flag: &Flag) -> Server {
        self.flags.push(flag.clone());
        self
    }

    /// Shows what the server does on a listener of its own: `tcp://127.0.0.1:9090`, or an
    /// [`Admin`](crate::admin::Admin) with more to it. Never on the addresses of the services.
    ///
    /// ```
    /// let server = switchboard::Server::new().admin("tcp://127.0.0.1:9090");
    /// ```
    #[cfg(feature = "http")]
    pub fn admin(mut self, admin: impl Into<crate::admin::Admin>) -> Server {
        self.admin = Some(admin.into());
        self
    }

    /// Runs before the server is ready: filling caches, opening connections. Meanwhile it listens and answers, but
    /// health checks say `NOT_SERVING`. When it fails, the server does not start. Several run one after the other.
    pub fn warm_up<F>(mut self, work: impl FnOnce() -> F + Send + 'static) -> Server
    where
        F: Future<Output = crate::Result<()>> + Send + 'static,
    {
        self.hooks().warm_up.push(Box::new(|| Box::pin(work())));
        self
    }

    /// Runs once the server is ready, with the addresses that were bound. When it fails, the server does not start.
    /// Several run one after the other.
    pub fn on_start<F>(mut self, hook: impl FnOnce(Vec<Address>) -> F + Send + 'static) -> Server
    where
        F: Future<Output = crate::Result<()>> + Send + 'static,
    {
        self.hooks().start.push(Box::new(|addresses| Box::pin(hook(addresses))));
        self
    }

    /// Runs when the server begins to stop, before it refuses anything. Several run at once.
    pub fn on_stop<F>(mut self, hook: impl FnOnce() -> F + Send + 'static) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.hooks().stop.push(Box::new(|| Box::pin(hook())));
        self
    }

    /// Takes over the TCP listeners of the server that waits at this path, if there is one, and waits there itself for
    /// the next: a new version of a program replaces the old one, and nobody is refused. When the new server is ready,
    /// the old one [stops](super::Running::handed_over). Both have to listen at the same addresses, as they are
    /// written; what the old one does not have is bound as usual. Only processes of the same user, and of root, are
    /// answered.
    #[cfg(feature = "handover")]
    pub fn handover(mut self, path: impl Into<std::path::PathBuf>) -> Server {
        self.handover = Some(path.into());
        self
    }

    /// How long a server that stops goes on as before, for the news to reach its callers: their registry, their load
    /// balancer. None unless set.
    pub fn notice(mut self, time: Duration) -> Server {
        self.hooks().notice = time;
        self
    }

    pub(super) fn hooks(&mut self) -> &mut Hooks {
        self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
