//! Items that cannot be sent: the first of an outage is logged with its reason, and the number at its end.

use switchboard::Status;

/// Lost items since the last success.
#[derive(Debug)]
pub(super) struct Outage {
    /// Name of the items, in the plural.
    what: &'static str,
    lost: u64,
}

impl Outage {
    pub(super) fn of(what: &'static str) -> Outage {
        Outage { what, lost: 0 }
    }

    /// Counts lost items. The first ones begin an outage, and are logged alone: a queue has thousands of items.
    pub(super) fn lost(&mut self, items: u64, status: &Status) {
        if self.lost == 0 {
            tracing::warn!(target: "switchboard::bus", what = self.what, "items were lost: {status}");
        }
        self.lost = self.lost.saturating_add(items);
    }

    /// Ends the outage, if there is one.
    pub(super) fn ended(&mut self) {
        if self.lost > 0 {
            tracing::warn!(target: "switchboard::bus", what = self.what, lost = self.lost, "an outage has ended");
            self.lost = 0;
        }
    }
}

/// Reports the number at the end of the queue.
impl Drop for Outage {
    fn drop(&mut self) {
        self.ended();
    }
}
