//! Clock and randomness of fleets.

pub(super) use switchboard_core::clock::{instant, now_ns as now, random};
