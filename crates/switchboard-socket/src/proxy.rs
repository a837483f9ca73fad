//! Proxies: forwarding of messages between two sockets, in both directions.
//!
//! | proxy | frontend | backend |
//! | --- | --- | --- |
//! | queue | ROUTER, bound for clients | DEALER, bound for workers |
//! | forwarder | XSUB, bound for publishers | XPUB, bound for subscribers |
//! | streamer | PULL, bound for senders | PUSH, bound for workers |

use crate::{Message, Result, Socket};
use tokio::sync::watch;

/// Forwards messages between two sockets until one of them fails or closes (`zmq_proxy`). `capture` gets a copy of each
/// message, as a PUB, PUSH, PAIR or DEALER; a copy for a full peer is dropped.
///
/// # Errors
/// Returns the first error of the two sockets. Dropping the future may lose the message that waits to be forwarded.
pub async fn proxy(frontend: &Socket, backend: &Socket, capture: Option<&Socket>) -> Result<()> {
    let (_control, state) = watch::channel(State::Running);
    run(frontend, backend, capture, state).await
}

/// A proxy that can be paused and ended (`zmq_proxy_steerable`).
#[derive(Debug)]
pub struct Steerable {
    control: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Ended,
    Paused,
    Running,
}

impl Steerable {
    /// Creates the control of a proxy, and the future that runs it: see [`proxy`].
    pub fn new(
        frontend: Socket,
        backend: Socket,
        capture: Option<Socket>,
    ) -> (Steerable, impl Future<Output = Result<()>> + Send) {
        let (control, state) = watch::channel(State::Running);
        let running = async move { run(&frontend, &backend, capture.as_ref(), state).await };
        (Steerable { control }, running)
    }

    /// Pauses the proxy (`PAUSE`): messages wait in the queues of its sockets.
    pub fn pause(&self) {
        self.set(State::Paused);
    }

    /// Continues a paused proxy (`RESUME`).
    pub fn resume(&self) {
        self.set(State::Running);
    }

    /// Ends the proxy (`TERMINATE`): its future returns `Ok`.
    pub fn terminate(&self) {
        self.control.send_replace(State::Ended);
    }

    fn set(&self, state: State) {
        self.control.send_if_modified(|current| {
            let is_changed = *current != State::Ended && *current != state;
            if is_changed {
                *current = state;
            }
            is_changed
        });
    }
}

async fn run(
    frontend: &Socket,
    backend: &Socket,
    capture: Option<&Socket>,
    state: watch::Receiver<State>,
) -> Result<()> {
    tokio::select! {
        result = forward(frontend, backend, capture, state.clone()) => result,
        result = forward(backend, frontend, capture, state.clone()) => result,
        () = ended(state) => Ok(()),
    }
}

async fn ended(mut state: watch::Receiver<State>) {
    if state.wait_for(|state| *state == State::Ended).await.is_err() {
        // The control was dropped: the proxy runs on.
        std::future::pending::<()>().await;
    }
}

/// Forwards in one direction; waits forever if the types have none.
async fn forward(
    from: &Socket,
    to: &Socket,
    capture: Option<&Socket>,
    mut state: watch::Receiver<State>,
) -> Result<()> {
    if !from.core().receives() || !to.core().sends() {
        return std::future::pending().await;
    }
    loop {
        if *state.borrow_and_update() == State::Paused
            && state.wait_for(|state| *state != State::Paused).await.is_err()
        {
            return std::future::pending().await;
        }
        let message: Message = from.recv().await?;
        if let Some(capture) = capture {
            // A capture that is full must not stop the proxy; its counters have the drops of a PUB.
            let _ = capture.try_send(message.clone());
        }
        to.send(message).await?;
    }
}
