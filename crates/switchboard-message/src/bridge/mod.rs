//! Bridges: topics of one bus, mirrored to another one.
//!
//! ```text
//! subscription of one side ─► Trail: has it been there? ─► publication to the other side, with trail and position
//! ```
//!
//! A copy has two headers: the names of the sides where its entry has been, and the position on the side that it was
//! copied from. Both are stored with the entry, so that a bridge needs no storage of its own: one that starts finds the
//! position in the newest copy that the destination keeps, and continues behind it.

mod copy;
mod resume;
mod trail;

use crate::{Bus, Selector};
use copy::{Copier, Counters};
use std::sync::{Arc, PoisonError, atomic::Ordering};
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::task::JoinHandle;

/// Mirrors topics between two buses, which may be on different engines; dropped, it ends.
///
/// ```
/// # use std::time::Duration;
/// # use switchboard_message::{Bridge, Bus, Delivery, TopicOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// # let kept = || Bus::builder().topics(">", TopicOptions::new().history(100, Duration::MAX));
/// # let (berlin, paris) = (kept()?.build(), kept()?.build());
/// let bridge = Bridge::builder("berlin", &berlin, "paris", &paris)
///     .to("orders/>")                                 // from Berlin to Paris
///     .from("alerts")                                 // from Paris to Berlin
///     .start()
///     .await?;
/// let mut orders = paris.subscribe::<u32>("orders/7").await?;
/// berlin.publish("orders/7", &1_u32).await?;
/// assert!(matches!(orders.next().await?, Some(Delivery::Entry(order)) if *order == 1));
/// assert_eq!(bridge.stats().gaps, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Bridge {
    counters: Arc<Counters>,
    tasks: Vec<JoinHandle<()>>,
}

/// Settings of a [`Bridge`].
#[derive(Debug)]
#[must_use = "a builder has no effect before `start`"]
pub struct BridgeBuilder {
    near: Side,
    far: Side,
    /// Topics, and whether they are those of the near side.
    rules: Vec<(Selector, bool)>,
    first_entries: usize,
}

/// A bus with the name that trails have.
#[derive(Clone, Debug)]
struct Side {
    name: Arc<str>,
    bus: Bus,
}

/// Counters of a [`Bridge`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BridgeStats {
    /// Entries that the other side has accepted, or had already.
    pub copied: u64,
    /// Entries that were not copied because they have been on the other side.
    pub returned: u64,
    /// Entries that were not copied because the other side refused them, for instance as too large.
    pub refused: u64,
    /// Gaps: entries that the source did not keep until they were copied, and starts at which the newest 1,000 entries
    /// of the destination had no copy, so that entries may be missing.
    pub gaps: u64,
}

impl Bridge {
    /// Returns the settings of a bridge between two buses, each with a name of its own: letters, digits, `.`, `-` and
    /// `_`. All bridges of a network use the same names for the same topics.
    pub fn builder(near_name: &str, near: &Bus, far_name: &str, far: &Bus) -> BridgeBuilder {
        let side = |name: &str, bus: &Bus| Side { name: name.into(), bus: bus.clone() };
        let (near, far) = (side(near_name, near), side(far_name, far));
        BridgeBuilder { near, far, rules: Vec::new(), first_entries: 0 }
    }

    /// Returns the counters.
    pub fn stats(&self) -> BridgeStats {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { copied, returned, refused, gaps, .. } = &*self.counters;
        BridgeStats {
            copied: count(copied),
            returned: count(returned),
            refused: count(refused),
            gaps: count(gaps),
        }
    }

    /// Returns the error that has ended the copying of some topics, such as a permission that was withdrawn.
    pub fn failure(&self) -> Option<Status> {
        self.counters.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl BridgeBuilder {
    /// Mirrors a topic, or the topics of a pattern, to the second bus.
    pub fn to(mut self, topics: impl Into<Selector>) -> BridgeBuilder {
        self.rules.push((topics.into(), true));
        self
    }

    /// Mirrors a topic, or the topics of a pattern, from the second bus.
    pub fn from(mut self, topics: impl Into<Selector>) -> BridgeBuilder {
        self.rules.push((topics.into(), false));
        self
    }

    /// Copies this number of the newest entries of a topic of which the destination keeps no copy; default 0, which
    /// begins with the next entry. At most 1,000 for a pattern.
    pub fn first_entries(mut self, entries: usize) -> BridgeBuilder {
        self.first_entries = entries;
        self
    }

    /// Begins to mirror.
    ///
    /// # Errors
    /// `InvalidArgument` for a bridge from a bus to itself, for names that are equal or not valid, and for invalid
    /// topics; `Unimplemented` for a pattern of a bus with an engine, and the errors of [`Bus::subscribe`].
    pub async fn start(self) -> Result<Bridge> {
        let BridgeBuilder { near, far, rules, first_entries } = self;
        trail::check_name(&near.name)?;
        trail::check_name(&far.name)?;
        if near.name == far.name || near.bus.is_same(&far.bus) {
            let text = format!(
                "the bridge between \"{}\" and \"{}\" would copy entries to their own topics; it needs two buses with \
                 different names",
                near.name, far.name
            );
            return Err(Status::invalid_argument(text));
        }
        let counters = Arc::<Counters>::default();
        let mut copiers = Vec::new();
        for (selector, is_near) in rules {
            let (from, to) = if is_near { (&near, &far) } else { (&far, &near) };
            let mut copier =
                Copier::new(from.clone(), to.clone(), selector, first_entries, counters.clone())?;
            let subscription = copier.subscribe().await?;
            copiers.push((copier, subscription));
        }
        let run = |(copier, subscription): (Copier, _)| tokio::spawn(copier.run(subscription));
        Ok(Bridge { counters, tasks: copiers.into_iter().map(run).collect() })
    }
}
