//! Clock and randomness of fleets.

pub(super) use crate::clock::{instant, now_ns as now, random};
