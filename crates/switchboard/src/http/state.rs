//! State that the HTTP connections of a server share: that of the server, and the options of HTTP.

use super::{Cors, Hosts, Pages, Rest, Standard, websocket};
use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};
use switchboard_driver::serving::ServerState;

/// Options of HTTP.
pub(crate) struct HttpConfig {
    pub(crate) rest: Rest,
    pub(crate) cors: Option<Arc<Cors>>,
    pub(crate) hosts: Hosts,
    pub(crate) pages: Pages,
    /// Web pages that may open WebSockets, and their compression.
    pub(crate) websockets: websocket::Options,
}

/// The state of a server with its options of HTTP.
pub(crate) struct HttpState {
    server: Arc<ServerState>,
    pub(super) config: HttpConfig,
    /// Health and reflection, created at the first request.
    pub(super) standard: OnceLock<Arc<Standard>>,
}

impl HttpState {
    pub(crate) fn new(server: Arc<ServerState>, config: HttpConfig) -> HttpState {
        HttpState { server, config, standard: OnceLock::new() }
    }

    /// Returns whether the server has pages of the application.
    pub(crate) fn serves_pages(&self) -> bool {
        !self.config.pages.is_empty()
    }

    /// Updates the health status to the phase of the server.
    pub(crate) fn follow_phase(&self) {
        Standard::follow(self);
    }
}

impl Deref for HttpState {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.server
    }
}
