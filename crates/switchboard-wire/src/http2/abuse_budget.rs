//! One budget for all work of a peer that brings no call, so that no kind of it needs a limit of its own.

/// Tokens of a new connection, and the most that it can have.
const TOKENS_MAX: u32 = 1000;
/// Tokens that are added per second.
const TOKENS_PER_SECOND: u64 = 33;
/// Bytes of bodies that add a token.
const BODY_BYTES: u32 = 16 << 10;
/// Early pings on an idle connection before it ends, as in gRPC: the peer may have changed its interval just before.
const STRIKES_MAX: u32 = 2;

/// Tokens of one connection. At none it ends with `ENHANCE_YOUR_CALM`.
///
/// Each stream error, each reset of an unanswered stream that is younger than 100 ms, each control frame and each piece
/// of a body that is tiny and completes nothing costs a token. Time, answered calls and bytes of bodies add tokens.
/// A peer that receives as many responses as it cancels calls therefore never exhausts them.
#[derive(Clone, Copy, Debug)]
pub struct AbuseBudget {
    tokens: u32,
    /// Time of the last refill in milliseconds.
    refilled: u64,
    /// Bytes of bodies since the last token for them.
    bytes: u32,
}

impl Default for AbuseBudget {
    fn default() -> AbuseBudget {
        AbuseBudget { tokens: TOKENS_MAX, refilled: 0, bytes: 0 }
    }
}

impl AbuseBudget {
    /// Takes a token; returns false if there is none.
    #[must_use]
    pub fn take(&mut self) -> bool {
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }

    /// Adds a token for a call that was answered.
    #[inline]
    pub fn answered(&mut self) {
        self.tokens = (self.tokens + 1).min(TOKENS_MAX);
    }

    /// Adds tokens for bytes of bodies.
    #[inline]
    pub fn received(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= BODY_BYTES {
            self.tokens = (self.tokens + self.bytes / BODY_BYTES).min(TOKENS_MAX);
            self.bytes %= BODY_BYTES;
        }
    }

    /// Adds tokens for a sent piece of a body: its peer may update two windows for it.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        if bytes > 0 {
            self.tokens = (self.tokens + 2).min(TOKENS_MAX);
        }
        self.received(bytes);
    }

    /// Adds the tokens of the time up to `now`, in milliseconds.
    pub fn refill(&mut self, now: u64) {
        let added = now.saturating_sub(self.refilled).saturating_mul(TOKENS_PER_SECOND) / 1000;
        if added > 0 {
            self.refilled = now;
            self.tokens = u64::from(self.tokens).saturating_add(added).min(u64::from(TOKENS_MAX)) as u32;
        }
    }
}

/// Pings of a peer (gRFC A8): they may come at any time while data of calls is sent or received, and otherwise not more
/// often than an interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pings {
    interval_ms: u64,
    /// Time of the last ping in milliseconds.
    last: Option<u64>,
    /// Data of a call was sent or received since then.
    pub busy: bool,
    strikes: u32,
}

impl Pings {
    /// An interval of zero allows any number of pings.
    pub fn new(interval_ms: u64) -> Pings {
        Pings { interval_ms, ..Pings::default() }
    }

    /// Counts a ping; returns false if there are too many.
    #[must_use]
    pub fn received(&mut self, now: u64) -> bool {
        let last = self.last.replace(now);
        let is_soon = last.is_some_and(|last| now.saturating_sub(last) < self.interval_ms);
        if std::mem::take(&mut self.busy) {
            self.strikes = 0;
        } else if is_soon {
            self.strikes += 1;
        }
        self.strikes <= STRIKES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_with_time_calls_and_bytes() {
        let mut budget = AbuseBudget::default();
        assert!((0..1000).all(|_| budget.take()) && !budget.take());
        budget.answered();
        assert!(budget.take() && !budget.take());
        budget.received(BODY_BYTES - 1);
        assert!(!budget.take());
        budget.received(1);
        assert!(budget.take() && !budget.take());
        budget.refill(30);
        assert!(!budget.take(), "less than a token is not lost");
        budget.refill(31);
        assert!(budget.take() && !budget.take());
        budget.refill(31 + 1000);
        assert!((0..33).all(|_| budget.take()) && !budget.take());
        budget.refill(u64::MAX);
        assert!((0..1000).all(|_| budget.take()) && !budget.take());
    }

    #[test]
    fn a_proxy_that_cancels_every_second_call_is_never_out_of_tokens() {
        let mut budget = AbuseBudget::default();
        for _ in 0..1_000_000 {
            budget.answered();
            assert!(budget.take());
        }
    }

    #[test]
    fn early_pings_on_an_idle_connection_are_counted() {
        let mut pings = Pings::new(1000);
        assert!((0..=STRIKES_MAX).all(|_| pings.received(5)));
        assert!(!pings.received(5));
        let mut busy = Pings::new(1000);
        for _ in 0..20 {
            assert!(busy.received(0) && busy.received(0));
            busy.busy = true;
        }
        let mut late = Pings::new(1000);
        assert!((0..20).all(|at| late.received(1000 * at)));
        let mut any = Pings::new(0);
        assert!((0..20).all(|_| any.received(0)));
    }
}
