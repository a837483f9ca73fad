//! `memory://name`: pipe pairs inside this process, for tests, and to run the real stack without a socket.

use std::{
    collections::HashMap,
    io,
    sync::{LazyLock, Mutex, PoisonError},
};
use tokio::{io::DuplexStream, sync::mpsc};

/// Bytes that one side may write ahead of the other.
const PIPE_BYTES: usize = 256 << 10;
/// Maximum number of dials that wait to be accepted.
const BACKLOG: usize = 128;

static LISTENERS: LazyLock<Mutex<HashMap<String, mpsc::Sender<DuplexStream>>>> =
    LazyLock::new(Mutex::default);

pub struct Listener {
    name: String,
    incoming: mpsc::Receiver<DuplexStream>,
}

impl Listener {
    pub fn bind(name: &str) -> io::Result<Listener> {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "the name is in use"));
        }
        let (dial, incoming) = mpsc::channel(BACKLOG);
        listeners.insert(name.to_owned(), dial);
        Ok(Listener { name: name.to_owned(), incoming })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub async fn accept(&mut self) -> io::Result<DuplexStream> {
        self.incoming.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

pub async fn dial(name: &str) -> io::Result<DuplexStream> {
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "no server listens under this name");
    let listener = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    listener.ok_or_else(refused)?.send(theirs).await.map_err(|_| refused())?;
    Ok(ours)
}
