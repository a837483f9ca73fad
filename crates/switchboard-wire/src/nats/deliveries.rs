//! Number of messages that a subscription has delivered, for UNSUB with a maximum.

use std::num::NonZeroU64;

/// Counter of one subscription. A server has one for each; the number of subscriptions is limited by the server, which
/// also has their table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deliveries {
    delivered: u64,
    max: Option<NonZeroU64>,
}

impl Deliveries {
    /// Counts a delivered message. Returns true if it was the last one: the subscription ends.
    #[must_use]
    pub fn deliver(&mut self) -> bool {
        self.delivered = self.delivered.saturating_add(1);
        self.is_over()
    }

    /// Sets the maximum of UNSUB, counted from the beginning of the subscription; `None` ends it at once. Returns true
    /// if the subscription ends now.
    #[must_use]
    pub fn unsubscribe(&mut self, max: Option<NonZeroU64>) -> bool {
        self.max = max;
        max.is_none() || self.is_over()
    }

    fn is_over(&self) -> bool {
        self.max.is_some_and(|max| self.delivered >= max.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_counts_from_the_beginning_of_the_subscription() {
        let mut one = Deliveries::default();
        assert!(!one.deliver() && !one.deliver());
        let mut other = one;
        assert!(!one.unsubscribe(NonZeroU64::new(3)));
        assert!(one.deliver(), "the third is the last");
        assert!(other.unsubscribe(NonZeroU64::new(2)), "already reached");
        assert!(Deliveries::default().unsubscribe(None));
    }
}
