//! Hooks of the application for the start and the end of connections.

use std::sync::Arc;
use switchboard_core::{Peer, Result};

pub(crate) type OnConnect = Box<dyn Fn(&Peer) -> Result<()> + Send + Sync>;
pub(crate) type OnDisconnect = Box<dyn Fn(&Peer) + Send + Sync>;

/// The hooks of a server, in the order in which they were added.
#[derive(Default)]
pub struct Hooks {
    #[doc(hidden)]
    pub connect: Vec<OnConnect>,
    #[doc(hidden)]
    pub disconnect: Vec<OnDisconnect>,
}

/// A started connection; its drop runs the hooks for the end.
pub struct Connected {
    hooks: Arc<Hooks>,
    peer: Peer,
}

impl Hooks {
    /// Runs the hooks for the start of a connection; returns `None` if there are no hooks for its end.
    ///
    /// # Errors
    /// Returns the error of the first hook that rejects the connection; later hooks do not run.
    pub(super) fn connect(hooks: &Arc<Hooks>, peer: &Peer) -> Result<Option<Box<Connected>>> {
        hooks.connect.iter().try_for_each(|hook| hook(peer))?;
        let has_hooks = !hooks.disconnect.is_empty();
        Ok(has_hooks.then(|| Box::new(Connected { hooks: hooks.clone(), peer: peer.clone() })))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        for hook in &self.hooks.disconnect {
            hook(&self.peer);
        }
    }
}
