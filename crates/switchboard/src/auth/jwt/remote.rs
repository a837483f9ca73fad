//! Key sets that are fetched from a URL, and kept while it does not answer.

use super::{Keys, Source, Verifier, seconds};
use crate::{
    Caller, Error, Result, Status,
    auth::wrong,
    layer::BoxFuture,
    web::{Ask, Site},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The source of a key set.
pub(super) struct Remote {
    pub(super) url: String,
    site: Site,
    /// Between two tries, whatever tokens name.
    pub(super) pause: Duration,
    state: Mutex<State>,
    /// Only one fetches; the others wait for it.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    tried: Option<Instant>,
    /// What was fetched last.
    body: Bytes,
    /// Why the last try brought nothing.
    trouble: Option<String>,
    refreshing: bool,
}

/// A set is fetched again after this time of calls.
const REFRESH: Duration = Duration::from_secs(300);
/// The pause unless set.
const PAUSE: Duration = Duration::from_secs(10);
/// Of an answer.
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

    /// Whether a try may be made now.
    fn may_try(&self) -> bool {
        self.state().tried.is_none_or(|tried| tried.elapsed() >= self.pause)
    }

    /// Fetches the set, unless somebody has tried just now.
    async fn fetch(&self, verifier: &Verifier) {
        let _alone = self.fetching.lock().await;
        if !self.may_try() {
            return;
        }
        self.state().tried = Some(Instant::now());
        let headers = [("accept", "application/json".to_owned())];
        let fetched = self.site.call(Ask { headers: &headers, bytes_max: BYTES_MAX, ..Ask::default() }).await;
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
                state.trouble = None;
                if let Some((body, keys)) = new {
                    state.body = body;
                    drop(state);
                    verifier.replace(keys);
                }
            }
            Err(why) => {
                if state.trouble.is_none() {
                    tracing::warn!("jwt: {why}; going on with the keys from before");
                }
                state.trouble = Some(why);
            }
        }
    }
}

/// The check of a token whose key is not known yet; none for one that needs no wait.
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
        let Source::Remote(remote) = &verifier.source else { return Err(wrong("the token is no JWT")) };
        remote.fetch(&verifier).await;
        let nothing = {
            let state = remote.state();
            state.body.is_empty().then(|| state.trouble.clone().unwrap_or_default())
        };
        match nothing {
            // The caller may be right: it is us who cannot know.
            Some(why) => {
                tracing::debug!("jwt: {why}");
                Err(Status::unavailable("the keys that verify tokens cannot be had right now"))
            }
            None => verifier.verify(&token, seconds()).map_err(wrong),
        }
    }))
}

/// Has the set fetched again if that is due; nobody waits for it.
fn refresh(verifier: &Arc<Verifier>, remote: &Remote) {
    {
        let mut state = remote.state();
        if state.refreshing || state.tried.is_none_or(|tried| tried.elapsed() < REFRESH) {
            return;
        }
        state.refreshing = true;
    }
    let verifier = verifier.clone();
    crate::runtime::spawn(async move {
        let Source::Remote(remote) = &verifier.source else { return };
        remote.fetch(&verifier).await;
        remote.state().refreshing = false;
    });
}
