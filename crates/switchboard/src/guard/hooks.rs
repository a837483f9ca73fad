//! What the application does when connections begin and end.

use crate::{Peer, Result};
use std::sync::Arc;

pub(crate) type OnConnect = Box<dyn Fn(&Peer) -> Result<()> + Send + Sync>;
pub(crate) type OnDisconnect = Box<dyn Fn(&Peer) + Send + Sync>;

/// The hooks of a server, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) connect: Vec<OnConnect>,
    pub(crate) disconnect: Vec<OnDisconnect>,
}

/// A connection that began; its end is told when it is dropped.
pub(crate) struct Connected {
    hooks: Arc<Hooks>,
    peer: Peer,
}

impl Hooks {
    /// Tells that a connection begins; none when there is nothing to tell at its end.
    ///
    /// # Errors
    /// That of the first hook that refuses the connection; those after it are not asked.
    pub(super) fn connect(hooks: &Arc<Hooks>, peer: &Peer) -> Result<Option<Box<Connected>>> {
        hooks.connect.iter().try_for_each(|hook| hook(peer))?;
        let tells = !hooks.disconnect.is_empty();
        Ok(tells.then(|| Box::new(Connected { hooks: hooks.clone(), peer: peer.clone() })))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        for hook in &self.hooks.disconnect {
            hook(&self.peer);
        }
    }
}
