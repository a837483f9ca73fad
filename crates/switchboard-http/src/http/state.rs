//! State that the HTTP connections of a server share: that of the server, and the options of HTTP.

use super::{Cors, Hosts, Pages, Rest, Standard, websocket};
use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};
use switchboard_driver::serving::ServerState;

/// Options of HTTP.
pub struct HttpConfig {
    /// Paths of the methods, and options of HTTP/JSON.
    pub rest: Rest,
    /// Origins whose pages may call.
    pub cors: Option<Arc<Cors>>,
    /// Names of the server for browsers.
    pub hosts: Hosts,
    /// Static files of the application.
    pub pages: Pages,
    /// Web pages that may open WebSockets, and their compression.
    pub websockets: websocket::Options,
}

/// The state of a server with its options of HTTP.
pub struct HttpState {
    server: Arc<ServerState>,
    pub(super) config: HttpConfig,
    /// Health and reflection, created at the first request.
    pub(super) standard: OnceLock<Arc<Standard>>,
}

impl HttpState {
    /// Creates the state of a server that starts.
    pub fn new(server: Arc<ServerState>, config: HttpConfig) -> HttpState {
        HttpState { server, config, standard: OnceLock::new() }
    }

    /// Returns whether the server has pages of the application.
    pub fn serves_pages(&self) -> bool {
        !self.config.pages.is_empty()
    }

    /// Updates the health status to the phase of the server.
    pub fn follow_phase(&self) {
        Standard::follow(self);
    }
}

impl Deref for HttpState {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.server
    }
}
