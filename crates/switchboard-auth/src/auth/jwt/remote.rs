//! Key sets that are fetched from a URL and kept while the URL is unreachable.

use super::{Keys, Source, Verifier, seconds};
use crate::auth::unauthenticated;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_core::{Caller, Error, Result, clock, layer::BoxFuture};
use switchboard_net::web::{HttpRequest, Site};
use switchboard_wire::Status;

/// The source of a key set.
pub(super) struct Remote {
    pub(super) url: String,
    site: Site,
    /// Minimum time between two fetches, regardless of the key ids in tokens.
    pub(super) pause: Duration,
    state: Mutex<State>,
    /// Held by the task that fetches; other tasks wait for it.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    tried: Option<Instant>,
    /// Body of the last successful response.
    body: Bytes,
    /// Error of the last fetch, if it failed.
    failure: Option<String>,
    refreshing: bool,
}

/// Age after which the next call fetches the set again.
const REFRESH: Duration = Duration::from_secs(300);
/// Default of the pause between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum size of a response in bytes.
const BYTES_MAX: usize = 256 << 10;

impl Remote {
    pub(super) fn new(url: &str, ca: Option<&Path>) -> Result<Remote, Error> {
        let site =
            Site::new("jwks", url, ca).map_err(|error| Error::config(format!("jwt: {}", error.message())))?;
        let url = url.to_owned();
        Ok(Remote {
            url,
            site,
            pause: PAUSE,
            state: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the pause since the last fetch is over.
    fn may_try(&self) -> bool {
        self.state().tried.is_none_or(|tried| tried.elapsed() >= self.pause)
    }

    /// Fetches the set, unless another task has fetched it within the pause.
    async fn fetch(&self, verifier: &Verifier) {
        let _alone = self.fetching.lock().await;
        if !self.may_try() {
            return;
        }
        self.state().tried = Some(clock::now());
        let headers = [("accept", "application/json".to_owned())];
        let fetched = self
            .site
            .call(HttpRequest { headers: &headers, bytes_max: BYTES_MAX, ..HttpRequest::default() })
            .await;
        let read = fetched.map_err(|status| status.message().to_owned()).and_then(|answer| {
            if self.state().body == answer.body {
                return Ok(None);
            }
            let keys = Keys::of_jwks(&answer.body, &self.url).map_err(|error| error.to_string())?;
            Ok(Some((answer.body, keys)))
        });
        let mut state = self.state();
        match read {
            Ok(new) => {
                state.failure = None;
                if let Some((body, keys)) = new {
                    state.body = body;
                    drop(state);
                    verifier.replace(keys);
                }
            }
            Err(why) => {
                if state.failure.is_none() {
                    tracing::warn!("jwt: {why}; keeping the previous keys");
                }
                state.failure = Some(why);
            }
        }
    }
}

/// Checks a token whose key is not in the set, after a fetch; returns `None` for tokens that need no fetch.
pub(super) fn check_later(
    verifier: &Arc<Verifier>,
    token: &str,
) -> Option<BoxFuture<'static, Result<Arc<Caller>>>> {
    let Source::Remote(remote) = &verifier.source else { return None };
    let header = token.split('.').next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    let keys = verifier.keys();
    let is_known = header.is_some_and(|header| keys.knows(&header));
    let was_fetched = !remote.state().body.is_empty();
    if is_known || (was_fetched && !remote.may_try()) {
        refresh(verifier, remote);
        return None;
    }
    let (verifier, token) = (verifier.clone(), token.to_owned());
    Some(Box::pin(async move {
        let Source::Remote(remote) = &verifier.source else {
            return Err(unauthenticated("the token is not a JWT"));
        };
        remote.fetch(&verifier).await;
        let nothing = {
            let state = remote.state();
            state.body.is_empty().then(|| state.failure.clone().unwrap_or_default())
        };
        match nothing {
            // The token may be valid: the server cannot verify it without keys.
            Some(why) => {
                tracing::debug!("jwt: {why}");
                Err(Status::unavailable("the keys that verify tokens cannot be fetched at the moment"))
            }
            None => verifier.verify(&token, seconds()).map_err(unauthenticated),
        }
    }))
}

/// Starts a fetch in the background if the set is due.
fn refresh(verifier: &Arc<Verifier>, remote: &Remote) {
    {
        let mut state = remote.state();
        if state.refreshing || state.tried.is_none_or(|tried| tried.elapsed() < REFRESH) {
            return;
        }
        state.refreshing = true;
    }
    let verifier = verifier.clone();
    switchboard_core::runtime::spawn(async move {
        let Source::Remote(remote) = &verifier.source else { return };
        remote.fetch(&verifier).await;
        remote.state().refreshing = false;
    });
}
