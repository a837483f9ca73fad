//! Sockets for programs without async. Connections run on one thread of the crate, `switchboard-socket`.
//!
//! ```
//! use switchboard_socket::{SocketOptions, SocketType, blocking::Socket};
//!
//! # fn main() -> Result<(), switchboard_socket::Error> {
//! let push = Socket::new(SocketType::Push, SocketOptions::default())?;
//! let endpoint = push.bind("tcp://127.0.0.1:0")?;
//! let pull = Socket::new(SocketType::Pull, SocketOptions::default())?;
//! pull.connect(&endpoint.to_string())?;
//! push.send("task")?;
//! assert_eq!(pull.recv()?.body(), b"task");
//! # Ok(())
//! # }
//! ```
//!
//! After a fork the child has no threads of its parent: calls of sockets that were created before return
//! [`ErrorKind::State`] where they would wait, and new sockets work.
//!
//! A call blocks its thread. Inside of an async task of tokio a call that waits panics; use [`crate::Socket`] there.

use crate::{Endpoint, Error, ErrorKind, Message, Result, SocketOptions, SocketStats};
use std::sync::{Mutex, PoisonError};
use switchboard_wire::zmtp::SocketType;
use tokio::runtime::{Builder, Runtime};

/// The runtime, and the process whose threads it has. A failure is not kept: the next call tries again.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the runtime of this process. A fork has none of the threads of its parent, whose runtime stays in memory.
fn runtime() -> Result<&'static Runtime> {
    let mut current = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, runtime)) = current.filter(|(owner, _)| *owner == process) {
        return Ok(runtime);
    }
    let built =
        Builder::new_multi_thread().worker_threads(1).thread_name("switchboard-socket").enable_all().build();
    let built = built.map_err(|error| {
        Error::caused(ErrorKind::State, "the thread of blocking sockets cannot be started", error)
    })?;
    let runtime = Box::leak(Box::new(built));
    *current = Some((process, runtime));
    Ok(runtime)
}

/// A socket of any type whose calls block their thread. Handles are cheap to clone and are used at the same time from
/// any thread.
#[derive(Clone, Debug)]
pub struct Socket(crate::Socket);

impl Socket {
    /// Creates a socket without endpoints.
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::new`].
    pub fn new(kind: SocketType, options: SocketOptions) -> Result<Socket> {
        let _entered = runtime()?.enter();
        crate::Socket::new(kind, options).map(Socket)
    }

    /// Binds an endpoint, see [`crate::Socket::bind_to`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::bind_to`].
    pub fn bind(&self, endpoint: &str) -> Result<Endpoint> {
        runtime()?.block_on(self.0.bind_to(endpoint))
    }

    /// Connects to an endpoint, see [`crate::Socket::connect_to`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::connect_to`].
    pub fn connect(&self, endpoint: &str) -> Result<()> {
        runtime()?.block_on(self.0.connect_to(endpoint))
    }

    /// Sends a message, see [`crate::Socket::send`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::send`].
    #[inline]
    pub fn send(&self, message: impl Into<Message>) -> Result<()> {
        let mut message = Some(message.into());
        self.0.core().send_now(&mut message)?;
        match message {
            None => Ok(()),
            Some(message) => runtime()?.block_on(self.0.send(message)),
        }
    }

    /// Receives a message, see [`crate::Socket::recv`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::recv`].
    #[inline]
    pub fn recv(&self) -> Result<Message> {
        match self.0.try_recv()? {
            Some(message) => Ok(message),
            None => runtime()?.block_on(self.0.recv()),
        }
    }

    /// Subscribes a SUB or XSUB, see [`crate::Socket::subscribe`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::subscribe`].
    pub fn subscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.0.subscribe(topic)
    }

    /// Ends one subscription, see [`crate::Socket::unsubscribe`].
    ///
    /// # Errors
    /// Returns the errors of [`crate::Socket::unsubscribe`].
    pub fn unsubscribe(&self, topic: impl AsRef<[u8]>) -> Result<()> {
        self.0.unsubscribe(topic)
    }

    /// Returns the counters of the socket and of each peer.
    pub fn stats(&self) -> SocketStats {
        self.0.stats()
    }

    /// Returns the socket for async tasks.
    pub fn as_async(&self) -> &crate::Socket {
        &self.0
    }

    /// Closes the socket, and waits until unsent messages are written, see [`crate::Socket::close`].
    ///
    /// # Errors
    /// Returns [`ErrorKind::State`] if the thread of blocking sockets does not run, and in a fork.
    pub fn close(&self) -> Result<()> {
        self.0.core().check_process()?;
        runtime()?.block_on(self.0.close());
        Ok(())
    }
}
