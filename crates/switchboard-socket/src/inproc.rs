//! Names inside this process: sockets that connect pass messages by reference, without bytes.

use crate::{Error, ErrorKind, PeerId, Result, core::Core};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

/// Connections that wait for one name to be bound, at most.
const WAITING_MAX: usize = 1024;

/// Sockets of this process by name.
#[derive(Debug, Default)]
struct Names {
    bound: HashMap<String, Weak<Core>>,
    /// Sockets that connected before the name was bound.
    waiting: HashMap<String, Vec<Weak<Core>>>,
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Binds a name, and connects the sockets that wait for it.
pub(crate) fn bind(core: &Arc<Core>, name: &str) -> Result<()> {
    let mut names = names();
    if names.bound.get(name).is_some_and(|bound| bound.strong_count() > 0) {
        let text = format!("bind inproc://{name}: the name is in use");
        return Err(Error::new(ErrorKind::Address, text));
    }
    names.bound.insert(name.to_owned(), Arc::downgrade(core));
    // The lock is held: a socket that disconnects meanwhile finds itself either here or connected.
    let waiting = names.waiting.remove(name).unwrap_or_default();
    for connecting in waiting.into_iter().filter_map(|core| core.upgrade()) {
        if let Err(error) = join(core, &connecting, name) {
            tracing::warn!(target: "switchboard::socket", name, %error, "inproc connection refused");
        }
    }
    Ok(())
}

/// Releases a name; returns false if the socket is not bound to it.
pub(crate) fn unbind(name: &str, core: &Weak<Core>) -> bool {
    let mut names = names();
    let is_bound = names.bound.get(name).is_some_and(|bound| bound.ptr_eq(core));
    if is_bound {
        names.bound.remove(name);
    }
    is_bound
}

/// Removes a connection that waits for a name to be bound; returns false if there is none.
pub(crate) fn forget(name: &str, core: &Weak<Core>) -> bool {
    let mut names = names();
    let Some(waiting) = names.waiting.get_mut(name) else { return false };
    let at = waiting.iter().position(|waiting| waiting.ptr_eq(core));
    if let Some(at) = at {
        waiting.swap_remove(at);
    }
    if waiting.is_empty() {
        names.waiting.remove(name);
    }
    at.is_some()
}

/// Connects to a name, now or when it is bound.
pub(crate) fn connect(core: &Arc<Core>, name: &str) -> Result<()> {
    let bound = {
        let mut names = names();
        let bound = names.bound.get(name).and_then(Weak::upgrade);
        if bound.is_none() {
            let waiting = names.waiting.entry(name.to_owned()).or_default();
            waiting.retain(|core| core.strong_count() > 0);
            if waiting.len() >= WAITING_MAX {
                let text =
                    format!("connect inproc://{name}: {WAITING_MAX} sockets wait for the name to be bound");
                return Err(Error::new(ErrorKind::Address, text));
            }
            waiting.push(Arc::downgrade(core));
        }
        bound
    };
    bound.map_or(Ok(()), |bound| join(&bound, core, name))
}

/// Connects two sockets.
fn join(bound: &Arc<Core>, connecting: &Arc<Core>, name: &str) -> Result<()> {
    let refused = |why: String| Error::new(ErrorKind::State, format!("connect inproc://{name}: {why}"));
    if !bound.kind.talks_to(connecting.kind) {
        return Err(refused(format!("{} does not talk to {}", connecting.kind, bound.kind)));
    }
    let endpoint: Arc<str> = format!("inproc://{name}").into();
    let at_bound = bound.attach_inproc(&endpoint, connecting, false).map_err(refused)?;
    let at_connecting = match connecting.attach_inproc(&endpoint, bound, true) {
        Ok(attached) => attached,
        Err(why) => {
            bound.detach(at_bound.id, crate::core::Batch::default(), &why);
            return Err(refused(why));
        }
    };
    let (first, second): (PeerId, PeerId) = (at_bound.id, at_connecting.id);
    bound.join_inproc(first, at_connecting.lane, Arc::downgrade(connecting), second);
    connecting.join_inproc(second, at_bound.lane, Arc::downgrade(bound), first);
    bound.send_subscriptions_inproc(&Arc::downgrade(connecting), second);
    connecting.send_subscriptions_inproc(&Arc::downgrade(bound), first);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Socket, SocketOptions, SocketType};

    #[tokio::test]
    async fn a_name_that_is_never_bound_is_forgotten_with_its_sockets() {
        let name = "never bound";
        let sockets = [SocketType::Push, SocketType::Push]
            .map(|kind| Socket::new(kind, SocketOptions::default()).unwrap());
        for socket in &sockets {
            socket.connect_to(&format!("inproc://{name}")).await.unwrap();
        }
        assert_eq!(names().waiting.get(name).map(Vec::len), Some(2));
        drop(sockets);
        assert!(!names().waiting.contains_key(name));
    }
}
