//! Devices: proxies with sockets of their own, in three kinds.
//!
//! ```text
//! queue      clients     ─► ROUTER ─ DEALER ─► workers      requests and replies
//! forwarder  publishers  ─► XSUB   ─ XPUB   ─► subscribers  messages one way, subscriptions the other
//! streamer   senders     ─► PULL   ─ PUSH   ─► workers      messages one way
//! ```
//!
//! A device holds at most the messages of the queues of its sockets, and one in each direction. A queue and a streamer
//! stop reading from their senders when all workers are full; a forwarder drops and counts, as publishers do.

use crate::{Error, ErrorKind, Result, route, task::Task};
use std::sync::{Arc, Mutex, PoisonError};
use switchboard_socket::{Endpoint, Socket, SocketOptions, SocketStats, SocketType, proxy::Steerable};

/// A proxy that runs as a task, with its sockets.
///
/// ```
/// use switchboard_pattern::devices::Device;
/// use switchboard_socket::{Pull, Push};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::streamer().bind_frontend("tcp://127.0.0.1:0").bind_backend("tcp://127.0.0.1:0").start().await?;
/// let push = Push::connect(&device.frontends()[0].to_string()).await?;
/// let pull = Pull::connect(&device.backends()[0].to_string()).await?;
/// push.send("task").await?;
/// assert_eq!(pull.recv().await?.body(), b"task");
/// # Ok(())
/// # }
/// ```
///
/// Dropping it ends the proxy and closes its sockets.
#[derive(Debug)]
pub struct Device {
    frontend: Socket,
    backend: Socket,
    control: Steerable,
    failure: Arc<Mutex<Option<Error>>>,
    task: Task,
}

impl Device {
    /// Returns the settings of a queue: ROUTER for clients, DEALER for workers.
    pub fn queue() -> DeviceBuilder {
        DeviceBuilder::new(SocketType::Router, SocketType::Dealer)
    }

    /// Returns the settings of a forwarder: XSUB for publishers, XPUB for subscribers.
    pub fn forwarder() -> DeviceBuilder {
        DeviceBuilder::new(SocketType::Xsub, SocketType::Xpub)
    }

    /// Returns the settings of a streamer: PULL for senders, PUSH for workers.
    pub fn streamer() -> DeviceBuilder {
        DeviceBuilder::new(SocketType::Pull, SocketType::Push)
    }

    /// Returns the endpoints that the frontend is bound to.
    pub fn frontends(&self) -> Vec<Endpoint> {
        self.frontend.endpoints()
    }

    /// Returns the endpoints that the backend is bound to.
    pub fn backends(&self) -> Vec<Endpoint> {
        self.backend.endpoints()
    }

    /// Pauses the device: messages wait in the queues of its sockets and of its peers.
    pub fn pause(&self) {
        self.control.pause();
    }

    /// Continues a paused device.
    pub fn resume(&self) {
        self.control.resume();
    }

    /// Returns the counters of both sockets.
    pub fn stats(&self) -> DeviceStats {
        DeviceStats { frontend: self.frontend.stats(), backend: self.backend.stats() }
    }

    /// Ends the proxy and closes its sockets: waits until their unsent messages are written, at most for
    /// `timeouts.linger` of each. If the future is dropped, the sockets close in the background.
    ///
    /// # Errors
    /// Returns the error that had ended the proxy before.
    pub async fn stop(mut self) -> Result<()> {
        self.control.terminate();
        self.task.ended().await;
        self.frontend.close().await;
        self.backend.close().await;
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Counters of a [`Device`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Counters of the frontend, with those of each peer.
    pub frontend: SocketStats,
    /// Counters of the backend, with those of each peer.
    pub backend: SocketStats,
}

/// Settings of a [`Device`].
#[derive(Debug)]
#[must_use = "a device does not run before `start`"]
pub struct DeviceBuilder {
    types: [SocketType; 2],
    frontends: Vec<Attachment>,
    backends: Vec<Attachment>,
    frontend_options: SocketOptions,
    backend_options: SocketOptions,
    capture: Option<Socket>,
}

#[derive(Debug)]
enum Attachment {
    Bind(String),
    Connect(String),
}

impl DeviceBuilder {
    fn new(frontend: SocketType, backend: SocketType) -> DeviceBuilder {
        DeviceBuilder {
            types: [frontend, backend],
            frontends: Vec::new(),
            backends: Vec::new(),
            frontend_options: SocketOptions::default(),
            backend_options: SocketOptions::default(),
            capture: None,
        }
    }

    /// Binds the frontend, the side of clients, publishers and senders, to another endpoint.
    pub fn bind_frontend(mut self, endpoint: &str) -> Self {
        self.frontends.push(Attachment::Bind(endpoint.to_owned()));
        self
    }

    /// Connects the frontend to another endpoint, such as that of a publisher.
    pub fn connect_frontend(mut self, endpoint: &str) -> Self {
        self.frontends.push(Attachment::Connect(endpoint.to_owned()));
        self
    }

    /// Binds the backend, the side of workers and subscribers, to another endpoint.
    pub fn bind_backend(mut self, endpoint: &str) -> Self {
        self.backends.push(Attachment::Bind(endpoint.to_owned()));
        self
    }

    /// Connects the backend to another endpoint.
    pub fn connect_backend(mut self, endpoint: &str) -> Self {
        self.backends.push(Attachment::Connect(endpoint.to_owned()));
        self
    }

    /// Sets the options of the frontend: its queues, limits and security.
    pub fn frontend_options(mut self, options: SocketOptions) -> Self {
        self.frontend_options = options;
        self
    }

    /// Sets the options of the backend.
    pub fn backend_options(mut self, options: SocketOptions) -> Self {
        self.backend_options = options;
        self
    }

    /// Sends a copy of each message to this socket, a PUB, PUSH, PAIR or DEALER. A copy for a full peer is dropped.
    pub fn capture(mut self, socket: impl AsRef<Socket>) -> Self {
        self.capture = Some(socket.as_ref().clone());
        self
    }

    /// Binds and connects the sockets, and starts the proxy on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for a side without an endpoint, for a socket that cannot capture, and for
    /// invalid endpoints and options; [`ErrorKind::Socket`] if an endpoint cannot be bound.
    pub async fn start(self) -> Result<Device> {
        if let Some(capture) = &self.capture {
            let kind = capture.kind();
            let types = [SocketType::Pub, SocketType::Push, SocketType::Pair, SocketType::Dealer];
            if !types.contains(&kind) {
                let text = format!("{kind} cannot capture messages; use PUB, PUSH, PAIR or DEALER");
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
        }
        let [frontend, backend] = self.types;
        let frontend = open("frontend", frontend, self.frontend_options, &self.frontends).await?;
        let backend = open("backend", backend, self.backend_options, &self.backends).await?;
        let (control, running) = Steerable::new(frontend.clone(), backend.clone(), self.capture);
        let failure = Arc::new(Mutex::new(None));
        let failed = failure.clone();
        let task = Task::spawn(async move {
            if let Err(error) = running.await {
                tracing::warn!(%error, "the proxy of a device has ended");
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
            }
        });
        Ok(Device { frontend, backend, control, failure, task })
    }
}

async fn open(
    side: &str,
    kind: SocketType,
    mut options: SocketOptions,
    attachments: &[Attachment],
) -> Result<Socket> {
    if attachments.is_empty() {
        let text = format!("the {side} of the device has no endpoint; call bind_{side} or connect_{side}");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    route::remove_time_limits(&mut options);
    let socket = Socket::new(kind, options)?;
    for attachment in attachments {
        match attachment {
            Attachment::Bind(endpoint) => drop(socket.bind_to(endpoint).await?),
            Attachment::Connect(endpoint) => socket.connect_to(endpoint).await?,
        }
    }
    Ok(socket)
}
