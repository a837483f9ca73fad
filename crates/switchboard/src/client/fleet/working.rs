//! A fleet of which few are left fails a share of its calls at once, so that those few are not buried under the load of
//! all and the others find room when they come back. The idea is brpc's `min_working_instances`.

use super::{Shared, clock};
use crate::{
    Result, Retry, Status,
    balance::{Demand, Pick, State},
};
use std::time::Duration;

/// When a call that failed for this may come again.
const COME_BACK: Duration = Duration::from_millis(500);

impl Shared {
    /// Whether a call that begins may be sent, as far as the number of servers is concerned that are well.
    ///
    /// # Errors
    /// `Unavailable` for its share of the calls when there are fewer than the policy wants.
    #[inline]
    pub(super) fn spare(&self, method: &str) -> Result<()> {
        if self.policy.min_working == 0 { Ok(()) } else { self.spare_the_few(method) }
    }

    #[cold]
    fn spare_the_few(&self, method: &str) -> Result<()> {
        let least = self.policy.min_working;
        let Some(working) = self.working(method) else { return Ok(()) };
        // When nobody is well a few calls go on, to find out.
        if working >= least || clock::chance() % u64::from(least) < u64::from(working.max(1)) {
            return Ok(());
        }
        let text = format!(
            "{working} servers of {} are well, and at {least} there is enough for all calls (min_working): this one \
             fails at once to spare them",
            self.base.name()
        );
        Err(Status::unavailable(text).with_retry(Retry::After(COME_BACK)))
    }

    /// How many servers are well, as far as calls of the method are concerned; none when nobody is connected, since
    /// then calls wait. Who was never tried is taken to be well.
    pub(super) fn working(&self, method: &str) -> Option<u32> {
        let set = self.set().clone();
        if !set.members.iter().any(|member| member.state() == State::Up) {
            return None;
        }
        let pick = Pick::new(method, clock::now(), 0).demanding(Demand::Well, "");
        let is_well = |at: &usize| {
            let member = &set.members[*at];
            let is_new = member.state() == State::Connecting && member.link.last().is_none();
            pick.takes(&set.endpoints[*at]) || (is_new && member.endpoint.weight() > 0)
        };
        Some((0..set.members.len()).filter(is_well).count() as u32)
    }
}
