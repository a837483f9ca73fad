//! Settings that can change while the server runs, on the admin pages, with an audit line and an optional
//! expiry.

use crate::{Error, clock, limits::Unit};
use std::{
    collections::VecDeque,
    fmt,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::task::AbortHandle;

/// Maximum number of changes in the history.
const CHANGES_MAX: usize = 100;

/// A number that can change while the server runs. Clones refer to the same flag.
///
/// ```
/// use switchboard::{Flag, limits::Unit};
///
/// let cache = Flag::new("cache_time", Unit::Milliseconds, 500, 0..=60_000, "how long answers are kept");
/// assert_eq!(cache.value(), 500);
/// ```
#[derive(Clone, Debug)]
pub struct Flag(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    doc: &'static str,
    unit: Unit,
    range: RangeInclusive<u64>,
    value: AtomicU64,
    /// Value to restore, and when.
    lent: Mutex<Option<Lent>>,
}

#[derive(Debug)]
struct Lent {
    until: Instant,
    before: u64,
    /// The task that waits for `until`; each flag has at most one.
    end: AbortHandle,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.end.abort();
    }
}

impl Flag {
    /// Creates a flag with this value, which can change within the range; both are in the unit.
    pub fn new(
        name: &'static str,
        unit: Unit,
        value: u64,
        range: RangeInclusive<u64>,
        doc: &'static str,
    ) -> Flag {
        let (value, lent) = (AtomicU64::new(value), Mutex::default());
        Flag(Arc::new(Inner { name, doc, unit, range, value, lent }))
    }

    /// Returns the current value with one relaxed load.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.value.load(Ordering::Relaxed)
    }

    /// Returns the name on the admin pages.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Returns the description of the effect.
    pub fn doc(&self) -> &'static str {
        self.0.doc
    }

    /// Returns the value with its unit, as limits are written: `8MiB`, `90s`.
    pub fn text(&self) -> String {
        self.0.unit.show(self.value())
    }

    /// Returns the range of valid values.
    pub fn range(&self) -> RangeInclusive<u64> {
        self.0.range.clone()
    }

    /// Returns the time until a temporary value expires, and the value that is then restored.
    pub fn lent(&self) -> Option<(Duration, u64)> {
        let lent = self.lock();
        lent.as_ref().map(|lent| (lent.until.saturating_duration_since(clock::now()), lent.before))
    }

    #[doc(hidden)]
    pub fn preset(&self, value: u64) {
        self.0.value.store(value, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Lent>> {
        self.0.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The flags of a server, and the history of their changes.
#[derive(Debug, Default)]
pub struct Flags {
    flags: Vec<Flag>,
    changes: Mutex<VecDeque<Change>>,
}

/// One change of a flag.
#[derive(Clone, Debug)]
pub struct Change {
    #[doc(hidden)]
    pub at: SystemTime,
    pub(crate) flag: &'static str,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) by: String,
    unit: Unit,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} to {}, by {}",
            self.flag,
            self.unit.show(self.from),
            self.unit.show(self.to),
            self.by
        )
    }
}

impl Flags {
    /// # Errors
    /// Fails if another flag has the same name.
    pub fn add(&mut self, flag: Flag) -> Result<(), Error> {
        if self.flags.iter().any(|known| known.name() == flag.name()) {
            return Err(Error::config(format!("two flags are named {}", flag.name())));
        }
        self.flags.push(flag);
        self.flags.sort_by_key(Flag::name);
        Ok(())
    }

    pub fn all(&self) -> &[Flag] {
        &self.flags
    }

    /// Returns the latest changes, the last one first.
    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    /// Returns the flag, and the parsed value.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn check(&self, name: &str, value: &str) -> Result<(&Flag, u64), Error> {
        let flag = self.flags.iter().find(|flag| flag.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.flags.iter().map(Flag::name).collect();
            Error::config(format!("flag {name:?} not found; the flags are {}", names.join(", ")))
        })?;
        let to = flag.0.unit.parse(value)?;
        if !flag.0.range.contains(&to) {
            let (least, most) =
                (flag.0.unit.show(*flag.0.range.start()), flag.0.unit.show(*flag.0.range.end()));
            return Err(Error::config(format!("{name} = {value} is out of range: {least} to {most}")));
        }
        Ok((flag, to))
    }

    /// Changes a flag permanently or for some time. Needs a tokio runtime, whose timer ends that time.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn set(
        self: &Arc<Self>,
        name: &str,
        value: &str,
        lasting: Option<Duration>,
        by: &str,
    ) -> Result<Flag, Error> {
        let (flag, to) = self.check(name, value)?;
        let until = lasting.map(|lasting| clock::after(clock::now(), lasting));
        let from = {
            let mut lent = flag.lock();
            let from = flag.0.value.swap(to, Ordering::Relaxed);
            // If the flag already has a temporary value, the original value is restored later.
            let before = lent.as_ref().map_or(from, |lent| lent.before);
            *lent = until.map(|until| Lent { until, before, end: self.spawn_end(flag, until) });
            from
        };
        self.note(flag, from, to, by);
        Ok(flag.clone())
    }

    /// Spawns a task that restores the value when the time ends.
    fn spawn_end(self: &Arc<Self>, flag: &Flag, until: Instant) -> AbortHandle {
        let (flags, flag) = (Arc::downgrade(self), flag.clone());
        let end = crate::runtime::spawn(async move {
            tokio::time::sleep_until(until.into()).await;
            let (from, to) = {
                let mut lent = flag.lock();
                // A later change has its own expiry, or none.
                let Some(due) = lent.take_if(|lent| lent.until == until) else { return };
                (flag.0.value.swap(due.before, Ordering::Relaxed), due.before)
            };
            if let Some(flags) = flags.upgrade() {
                flags.note(&flag, from, to, "its expiry");
            }
        });
        end.abort_handle()
    }

    fn note(&self, flag: &Flag, from: u64, to: u64, by: &str) {
        let at = clock::time_of_day();
        let change = Change { at, flag: flag.name(), from, to, by: by.to_owned(), unit: flag.0.unit };
        tracing::info!(target: "switchboard::audit", "flag {change}");
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() == CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> (Arc<Flags>, Flag) {
        let flag = Flag::new("slow_call", Unit::Milliseconds, 100, 0..=60_000, "threshold of slow calls");
        let mut flags = Flags::default();
        flags.add(flag.clone()).unwrap();
        assert!(flags.add(flag.clone()).is_err());
        (Arc::new(flags), flag)
    }

    #[tokio::test(start_paused = true)]
    async fn lent_value_goes_back_to_the_first_one() {
        let (flags, flag) = flags();
        flags.set("slow_call", "2s", Some(Duration::from_secs(60)), "alice").unwrap();
        flags.set("slow_call", "3s", Some(Duration::from_secs(30)), "bob").unwrap();
        assert_eq!((flag.value(), flag.lent().map(|(_, before)| before)), (3000, Some(100)));
        tokio::time::sleep(Duration::from_secs(45)).await;
        assert_eq!((flag.value(), flag.lent()), (100, None));
        let changes: Vec<_> = flags.changes().iter().map(ToString::to_string).collect();
        assert_eq!(changes[0], "slow_call: 3s to 100ms, by its expiry");
        assert_eq!((changes.len(), &*changes[2]), (3, "slow_call: 100ms to 2s, by alice"));
    }

    #[tokio::test(start_paused = true)]
    async fn however_often_a_flag_is_lent_one_task_waits() {
        let (flags, flag) = flags();
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = alive();
        for _ in 0..100 {
            flags.set("slow_call", "2s", Some(Duration::from_secs(3600)), "dave").unwrap();
            // An aborted task ends when it is polled.
            tokio::task::yield_now().await;
        }
        assert_eq!(alive(), before + 1);
        flags.set("slow_call", "3s", None, "dave").unwrap();
        tokio::task::yield_now().await;
        assert_eq!((alive(), flag.lent().is_none()), (before, true));
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert_eq!(flag.value(), 3000);
    }

    #[tokio::test]
    async fn wrong_changes_change_nothing() {
        let (flags, flag) = flags();
        for (name, value, expected) in [
            ("slow", "1s", "the flags are slow_call"),
            ("slow_call", "1", "ms, s"),
            ("slow_call", "2h", "0ms to 1min"),
        ] {
            let error = flags.set(name, value, None, "carol").unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert_eq!((flag.value(), flags.changes().len()), (100, 0));
    }
}
