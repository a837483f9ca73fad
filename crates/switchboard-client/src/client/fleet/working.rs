//! Load shedding of a fleet with few healthy servers: a share of the calls fails at once, so that the remaining servers
//! are not overloaded and recovering servers have spare capacity. Modelled after brpc's `min_working_instances`.

use super::{Shared, clock};
use std::time::Duration;
use switchboard_core::Result;
use switchboard_discovery::balance::{Demand, Pick, State};
use switchboard_wire::{Retry, Status};

/// Time after which a call that was shed may be retried.
const RETRY_AFTER: Duration = Duration::from_millis(500);

impl Shared {
    /// Checks whether a new call may be sent, given the number of healthy servers.
    ///
    /// # Errors
    /// `Unavailable` for a share of the calls when there are fewer healthy servers than
    /// [`min_working`](crate::ChannelBuilder::min_working).
    #[inline]
    pub(super) fn check_min_working(&self, method: &str) -> Result<()> {
        if self.policy.min_working == 0 { Ok(()) } else { self.shed_load(method) }
    }

    #[cold]
    fn shed_load(&self, method: &str) -> Result<()> {
        let least = self.policy.min_working;
        let Some(working) = self.working(method) else { return Ok(()) };
        // When no server is healthy, a few calls are sent as probes.
        if working >= least || clock::random() % u64::from(least) < u64::from(working.max(1)) {
            return Ok(());
        }
        let text = format!(
            "{working} servers of {} are healthy, below the {least} needed for all calls (min_working): this call \
             fails at once to shed load",
            self.base.name()
        );
        Err(Status::unavailable(text).with_retry(Retry::After(RETRY_AFTER)))
    }

    /// Returns the number of servers that are healthy for calls of the method, or `None` when none is connected,
    /// because calls wait then. A server that was never tried counts as healthy.
    pub(super) fn working(&self, method: &str) -> Option<u32> {
        let set = self.set().clone();
        if !set.members.iter().any(|member| member.state() == State::Up) {
            return None;
        }
        let pick = Pick::new(method, clock::now(), 0).demanding(Demand::Healthy, "");
        let is_healthy = |at: &usize| {
            let member = &set.members[*at];
            let is_new = member.state() == State::Connecting && member.link.last().is_none();
            pick.accepts(&set.endpoints[*at]) || (is_new && member.endpoint.weight() > 0)
        };
        Some((0..set.members.len()).filter(is_healthy).count() as u32)
    }
}
