//! A network between two endpoints that a test fails and repairs.

use std::sync::{Arc, Mutex};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Forwards TCP connections to an address until it is cut.
pub(crate) struct Forwarder {
    /// Endpoint to connect to.
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
    accept: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    connections: Vec<JoinHandle<()>>,
}

impl Forwarder {
    /// Forwards to an endpoint such as `tcp://127.0.0.1:5556`.
    pub(crate) async fn to(endpoint: &str) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("tcp://{}", listener.local_addr().unwrap());
        let target = endpoint.strip_prefix("tcp://").unwrap().to_owned();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let accept = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let target = target.clone();
                let mut state = shared.lock().unwrap();
                if state.is_cut {
                    continue;
                }
                state.connections.push(tokio::spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(target).await {
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                }));
            }
        });
        Forwarder { endpoint: own, state, accept }
    }

    /// Closes all connections, and each later one at once.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        state.connections.drain(..).for_each(|connection| connection.abort());
    }

    /// Forwards again.
    pub(crate) fn repair(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.cut();
        self.accept.abort();
    }
}
