//! Settings of a bus.

use super::{Bus, Side, local::Local};
use crate::{
    clock::Clock,
    limits::Limits,
    log::{Log, Pattern, TopicOptions},
};
use std::sync::{Arc, atomic::AtomicU64};
use switchboard_core::Result;
use switchboard_wire::Codec;

/// Settings of a [`Bus`].
#[derive(Clone, Debug)]
#[must_use = "a builder has no effect before `build`"]
pub struct BusBuilder {
    limits: Limits,
    rules: Vec<(Pattern, TopicOptions)>,
    clock: Clock,
    codec: Codec,
}

impl BusBuilder {
    pub(super) fn new() -> BusBuilder {
        let (limits, rules) = (Limits::default(), Vec::new());
        BusBuilder { limits, rules, clock: Clock::Runtime, codec: Codec::Postcard }
    }

    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> BusBuilder {
        self.limits = limits;
        self
    }

    /// Sets the options of the topics that match a pattern. The first pattern that matches a name applies.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern.
    pub fn topics(mut self, pattern: &str, options: TopicOptions) -> Result<BusBuilder> {
        self.rules.push((Pattern::new(pattern)?, options));
        Ok(self)
    }

    /// Sets the codec of messages whose publication names none; default postcard.
    pub fn codec(mut self, codec: Codec) -> BusBuilder {
        self.codec = codec;
        self
    }

    /// Uses a clock in nanoseconds that is moved by hand; timers never fire. For simulations that poll.
    #[doc(hidden)]
    pub fn manual_clock(mut self, clock: Arc<AtomicU64>) -> BusBuilder {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Creates the bus.
    pub fn build(self) -> Bus {
        let BusBuilder { limits, rules, clock, codec } = self;
        let log = Log::new(limits, rules, switchboard_core::clock::random);
        Bus { side: Side::Local(Arc::new(Local::new(log, clock, codec))) }
    }
}
