//! The parts of a running proxy that SIGHUP changes: routes, added metadata, and the output of the tap.
//!
//! Rates and limits are flags of the server, which [`Config`] sets.

use super::{ProxyArgs, current::Current, onward::UpstreamRoutes, tap::Tap, upstream::Upstream};
use crate::config::{Config, Prepared};
use std::{sync::Arc, time::Duration};
use switchboard::client::ConnectionAborter;

/// The parts of a proxy that a reload replaces.
pub(super) struct Reloading {
    pub(super) routes: Arc<Current<UpstreamRoutes>>,
    pub(super) tap: Option<Tap>,
    /// Time that calls on replaced routes have to end.
    pub(super) drain: Duration,
}

impl Reloading {
    /// Prepares these settings, of which the named ones have changed. Nothing takes effect yet, and no connection is
    /// opened.
    ///
    /// # Errors
    /// An invalid setting, and its position.
    pub(super) fn prepare(&self, new: &Config, changed: &[&str]) -> Result<Prepared, String> {
        let args = ProxyArgs::of(new)?;
        let is_changed = |name: &str| changed.contains(&name);
        let tap = self
            .tap
            .clone()
            .filter(|_| is_changed("tap_filter") || is_changed("tap_redact") || is_changed("tap_undecoded"));
        let rules = tap.map(|tap| (tap, args.tap.rules()));
        let next = if is_changed("to") || is_changed("header") {
            let at = if is_changed("to") { "to" } else { "header" };
            let upstream = Upstream::new(&args).map_err(|why| new.config_error(at, &why))?;
            Some(self.routes.get().over(&upstream).map_err(|why| new.config_error(at, &why))?)
        } else {
            None
        };
        let changed: Vec<_> = changed.iter().map(|name| (*name).to_owned()).collect();
        let (routes, drain) = (self.routes.clone(), self.drain);
        Ok(Prepared::new(move || {
            if let Some((tap, rules)) = rules {
                tap.follow(rules);
            }
            if let Some(next) = next {
                let aborter = routes.replace(next).aborter();
                tokio::spawn(give_time(aborter, drain));
            }
            // Values may be secret: headers, and passwords of registries.
            let said = changed.iter().map(|name| match &**name {
                "to" => format!(
                    "to has changed: calls that come now go there, and those under routes have {drain:?} \
                     (drain_timeout) to end where they are"
                ),
                name => format!("{name} has changed"),
            });
            said.collect()
        }))
    }
}

/// Aborts the remaining calls of replaced routes after their time.
async fn give_time(aborter: ConnectionAborter, time: Duration) {
    tokio::time::sleep(time).await;
    let left = aborter.abort();
    if left > 0 {
        let s = if left == 1 { "" } else { "s" };
        eprintln!(
            "aborted {left} connection{s} to servers from before the reload after {time:?} (drain_timeout)"
        );
    }
}
