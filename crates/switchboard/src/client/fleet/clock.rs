//! Time and chance of fleets.

pub(super) use crate::clock::{chance, instant, now_ns as now};
