//! What SIGHUP changes in a proxy that runs: where calls go, what goes with them, and what the tap shows.
//!
//! Rates and limits are flags of the server, which [`Config`] sets.

use super::{ProxyArgs, current::Current, onward::Way, tap::Tap, upstream::Upstream};
use crate::config::{Config, Prepared};
use std::{sync::Arc, time::Duration};
use switchboard::client::Cut;

/// The parts of a proxy that a reload replaces.
pub(super) struct Reloading {
    pub(super) way: Arc<Current<Way>>,
    pub(super) tap: Option<Tap>,
    /// What calls on a way that was replaced get to end.
    pub(super) drain: Duration,
}

impl Reloading {
    /// Makes ready what these settings ask for, of which those named have changed. Nothing is in force yet, and
    /// nothing is connected to.
    ///
    /// # Errors
    /// A setting that cannot be, and where it is.
    pub(super) fn prepare(&self, new: &Config, changed: &[&str]) -> Result<Prepared, String> {
        let args = ProxyArgs::of(new)?;
        let is_changed = |name: &str| changed.contains(&name);
        let tap = self.tap.clone().filter(|_| is_changed("tap_filter") || is_changed("tap_redact"));
        let rules = tap.map(|tap| (tap, args.tap.rules()));
        let next = if is_changed("to") || is_changed("header") {
            let at = if is_changed("to") { "to" } else { "header" };
            let upstream = Upstream::new(&args).map_err(|why| new.wrong(at, &why))?;
            Some(self.way.get().over(&upstream).map_err(|why| new.wrong(at, &why))?)
        } else {
            None
        };
        let changed: Vec<_> = changed.iter().map(|name| (*name).to_owned()).collect();
        let (way, drain) = (self.way.clone(), self.drain);
        Ok(Prepared::new(move || {
            if let Some((tap, rules)) = rules {
                tap.follow(rules);
            }
            if let Some(next) = next {
                let cut = way.replace(next).cut();
                tokio::spawn(give_time(cut, drain));
            }
            // Values may be secret: of headers, and passwords of registries.
            let said = changed.iter().map(|name| match &**name {
                "to" => format!(
                    "to has changed: calls that come now go there, and those under way have {drain:?} \
                     (drain_timeout) to end where they are"
                ),
                name => format!("{name} has changed"),
            });
            said.collect()
        }))
    }
}

/// Ends what is left of a way after its time.
async fn give_time(cut: Cut, time: Duration) {
    tokio::time::sleep(time).await;
    let left = cut.now();
    if left > 0 {
        let s = if left == 1 { "" } else { "s" };
        eprintln!(
            "{left} connection{s} to servers of before the reload had to be cut after {time:?} (drain_timeout)"
        );
    }
}
