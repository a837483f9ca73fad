//! One server of a fleet as balancers see it: its instance as registered, and the statistics of its calls.

use super::{Outcome, breaker::Breakers};
use crate::discover::{self, Instance};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// One server of a fleet.
pub struct Endpoint {
    instance: Instance,
    weight: u32,
    /// Latitude and longitude in degrees.
    position: Option<(f64, f64)>,
    stats: Arc<Stats>,
}

impl Endpoint {
    /// Creates an endpoint that is connected and has no calls yet.
    pub fn new(instance: Instance) -> Endpoint {
        let stats = Stats::default();
        stats.set_state(State::Up, 0);
        let degrees = |name| {
            let degrees = instance.tags.get(name).and_then(|text: &String| text.parse().ok());
            // The parser accepts `NaN` and `inf`, which are not valid degrees.
            degrees.filter(|degrees: &f64| degrees.abs() <= 360.0)
        };
        let position = degrees("latitude").zip(degrees("longitude"));
        let weight = if instance.state == discover::State::Up { instance.weight } else { 0 };
        Endpoint { instance, weight, position, stats: Arc::new(stats) }
    }

    /// Continues with the statistics of an earlier description of the same endpoint.
    #[doc(hidden)]
    pub fn with_stats(mut self, stats: Arc<Stats>) -> Endpoint {
        self.stats = stats;
        self
    }

    /// The instance as discovery describes it.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Its id in the set; sets are sorted by it.
    pub fn id(&self) -> &str {
        &self.instance.id
    }

    /// Its address as a URL.
    pub fn address(&self) -> &str {
        &self.instance.address
    }

    /// Its share of the traffic; 100 is usual, 0 takes none. The weight of an instance that is not up is 0.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its group, or the empty string.
    pub fn group(&self) -> &str {
        &self.instance.group
    }

    /// Its zone, or the empty string.
    pub fn zone(&self) -> &str {
        &self.instance.zone
    }

    /// The value of a tag.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.instance.tags.get(name).map(String::as_str)
    }

    /// Latitude and longitude in degrees, from its tags.
    pub fn position(&self) -> Option<(f64, f64)> {
        self.position
    }

    /// Calls of this channel in flight on it.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.stats.in_flight.load(Relaxed)
    }

    /// Calls sent to it in all.
    pub fn calls(&self) -> u64 {
        self.stats.calls.load(Relaxed)
    }

    /// Calls that ended with a failure of the endpoint.
    pub fn failures(&self) -> u64 {
        self.stats.failures.load(Relaxed)
    }

    /// Smoothed latency of its responses: rises at once, falls over seconds, and decays while there are no responses.
    /// Zero before the first response.
    pub fn latency(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.stats.latency_ns(now_ns) as u64)
    }

    /// Returns true when it is connected and not ejected.
    #[inline]
    pub fn is_healthy(&self, now_ns: u64) -> bool {
        self.stats.is_healthy(now_ns)
    }

    /// Slow-start factor of its weight: 0.1 when it has just come up, rising to 1 after `ramp_ns`.
    pub(crate) fn slow_start_factor(&self, now_ns: u64, ramp_ns: u64) -> f64 {
        let age = now_ns.saturating_sub(self.stats.up_since.load(Relaxed));
        // The minimum of 0.1 gives an endpoint some calls during its warm-up.
        (age as f64 / ramp_ns as f64).clamp(0.1, 1.0)
    }

    /// Number that is unique among the endpoints of this process; it stays the same while the id is known.
    #[inline]
    #[doc(hidden)]
    pub fn number(&self) -> u64 {
        self.stats.number
    }

    #[doc(hidden)]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id())
            .field("address", &self.address())
            .field("weight", &self.weight)
            .field("in_flight", &self.in_flight())
            .field("calls", &self.calls())
            .field("failures", &self.failures())
            .finish_non_exhaustive()
    }
}

/// Statistics of an endpoint. Aligned to its own cache lines, because every call writes here.
#[derive(Debug)]
#[repr(align(128))]
pub struct Stats {
    number: u64,
    state: AtomicU8,
    in_flight: AtomicU32,
    calls: AtomicU64,
    failures: AtomicU64,
    /// The smoothed latency in ns as the bits of an `f64`; `latency_at` is the time of its last update.
    latency: AtomicU64,
    latency_at: AtomicU64,
    up_since: AtomicU64,
    ejected_until: AtomicU64,
    /// Failures since the last response.
    streak: AtomicU32,
    breakers: Breakers,
}

/// Connection state of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
// closed: the states are stored in a byte, and balancers compare all of them
pub enum State {
    /// A connection is being made; the result is not known yet.
    Connecting = 0,
    /// The last attempt to connect failed.
    Down = 1,
    /// It is connected.
    Up = 2,
}

/// Time constant of the latency in ns: after it, two thirds of the distance to the new value, or to zero, are covered.
/// Short enough that an endpoint with one slow response gets calls again within seconds.
const DECAY_NS: f64 = 2e9;

/// Failures alone raise the latency of an endpoint to this value at most.
const FAILED_NS_MAX: f64 = 1e9;

impl Default for Stats {
    fn default() -> Stats {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Stats {
            number: NEXT.fetch_add(1, Relaxed),
            state: AtomicU8::new(State::Connecting as u8),
            in_flight: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            latency_at: AtomicU64::new(0),
            up_since: AtomicU64::new(0),
            ejected_until: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            breakers: Breakers::default(),
        }
    }
}

impl Stats {
    /// Records the begin of a call.
    #[inline]
    pub fn begun(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        self.calls.fetch_add(1, Relaxed);
    }

    /// Records the end of a call that [`begun`](Self::begun) counted.
    #[inline]
    pub fn ended(&self, outcome: &Outcome, now_ns: u64) {
        self.in_flight.fetch_sub(1, Relaxed);
        let took = outcome.took.as_nanos() as f64;
        match outcome.code {
            switchboard_wire::Code::Canceled => {
                // The call would have taken longer, so its duration is a lower bound.
                if took > self.latency_ns(now_ns) {
                    self.observe(took, now_ns);
                }
            }
            _ if outcome.lost => {
                self.failures.fetch_add(1, Relaxed);
            }
            _ if outcome.is_fault() => {
                self.failures.fetch_add(1, Relaxed);
                self.streak.fetch_add(1, Relaxed);
                // A server that fails quickly must not appear fast. The limit lets it get calls again, however often it
                // failed.
                let known = self.latency_ns(now_ns);
                let slower = (2.0 * known + 1e6).min(FAILED_NS_MAX).max(known);
                self.observe(took.max(slower), now_ns);
            }
            _ => {
                if self.streak.load(Relaxed) != 0 {
                    self.streak.store(0, Relaxed);
                }
                self.observe(took, now_ns);
            }
        }
    }

    /// Smoothed latency in ns.
    #[inline]
    pub(crate) fn latency_ns(&self, now_ns: u64) -> f64 {
        let latency = f64::from_bits(self.latency.load(Relaxed));
        latency * decay(now_ns.saturating_sub(self.latency_at.load(Relaxed)))
    }

    /// Concurrent callers may overwrite each other's sample; any of the samples is good enough.
    #[inline]
    fn observe(&self, took: f64, now_ns: u64) {
        let known = f64::from_bits(self.latency.load(Relaxed));
        let age = now_ns.saturating_sub(self.latency_at.load(Relaxed));
        let latency = if took >= known {
            took
        } else {
            let keep = decay(age);
            known * keep + took * (1.0 - keep)
        };
        if known == 0.0 || took >= known || age > DECAY_NS as u64 / 1000 {
            self.latency.store(latency.to_bits(), Relaxed);
            self.latency_at.store(now_ns, Relaxed);
        }
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            2 => State::Up,
            1 => State::Down,
            _ => State::Connecting,
        }
    }

    /// Sets the state and returns the previous one. An endpoint that was down and comes up is treated as a new server:
    /// its latency, failures and breakers are reset.
    pub fn set_state(&self, state: State, now_ns: u64) -> State {
        let before = self.state();
        if state == State::Up && before != State::Up {
            self.up_since.store(now_ns, Relaxed);
            if before == State::Down {
                self.latency.store(0, Relaxed);
                self.ejected_until.store(0, Relaxed);
                self.streak.store(0, Relaxed);
                self.breakers.clear();
            }
        }
        self.state.store(state as u8, Relaxed);
        before
    }

    /// Ejects the endpoint for its failures until this time.
    pub fn eject(&self, until_ns: u64) {
        self.ejected_until.store(until_ns, Relaxed);
    }

    /// Remaining time of its ejection, if it is ejected.
    pub fn ejected_for(&self, now_ns: u64) -> Option<Duration> {
        let left = self.ejected_until.load(Relaxed).saturating_sub(now_ns);
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Returns true when it was connected again after this time.
    pub fn is_up_since(&self, ns: u64) -> bool {
        self.up_since.load(Relaxed) > ns
    }

    /// Returns whether the endpoint is ejected at this time.
    pub fn is_ejected(&self, now_ns: u64) -> bool {
        self.ejected_until.load(Relaxed) > now_ns
    }

    #[inline]
    fn is_healthy(&self, now_ns: u64) -> bool {
        self.state.load(Relaxed) == State::Up as u8 && !self.is_ejected(now_ns)
    }

    /// Returns true when it is connected, not ejected, and its breaker admits calls of this method.
    #[inline]
    pub(crate) fn admits(&self, method: &str, now_ns: u64) -> bool {
        self.is_healthy(now_ns) && self.breakers.admit(method, now_ns)
    }

    /// Returns the circuit breakers.
    pub fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// Failures of any method since the last response.
    pub fn streak(&self) -> u32 {
        self.streak.load(Relaxed)
    }
}

/// Fraction of a latency that remains after this time.
#[inline]
fn decay(age_ns: u64) -> f64 {
    let age = age_ns as f64;
    // Most calls come within a millisecond of the last: the linear approximation is exact enough, and cheaper.
    if age < DECAY_NS / 100.0 { 1.0 - age / DECAY_NS } else { (-age / DECAY_NS).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    fn succeeded(stats: &Stats, took: Duration, now_ns: u64) {
        stats.begun();
        stats.ended(&Outcome::new(took, Code::Ok), now_ns);
    }

    #[test]
    fn latency_rises_at_once_and_falls_slowly() {
        let stats = Stats::default();
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(100));
        succeeded(&stats, fast, 0);
        assert!((stats.latency_ns(0) - 1e6).abs() < 1.0);
        succeeded(&stats, slow, 1_000_000);
        assert!((stats.latency_ns(1_000_000) - 1e8).abs() < 1.0);
        let mut now = 1_000_000;
        for _ in 0..100 {
            now += 10_000_000;
            succeeded(&stats, fast, now);
        }
        // Half of `DECAY_NS` later.
        let latency = stats.latency_ns(now) / 1e6;
        assert!((55.0..66.0).contains(&latency), "{latency} ms");
        assert!(stats.latency_ns(now + 20 * DECAY_NS as u64) < 1e4, "decays without responses");
    }

    #[test]
    fn fast_failures_raise_the_latency_and_late_cancellation_counts_as_waiting() {
        let stats = Stats::default();
        succeeded(&stats, Duration::from_millis(10), 0);
        stats.begun();
        stats.ended(&Outcome::new(Duration::from_micros(1), Code::Internal), 0);
        assert!(stats.latency_ns(0) >= 2e7);
        assert_eq!((stats.failures.load(Relaxed), stats.calls.load(Relaxed)), (1, 2));
        stats.begun();
        stats.ended(&Outcome::new(Duration::from_micros(1), Code::Canceled), 0);
        assert!(stats.latency_ns(0) >= 2e7, "an immediate cancellation is no sample");
        stats.begun();
        stats.ended(&Outcome::new(Duration::from_secs(1), Code::Canceled), 0);
        assert!(stats.latency_ns(0) >= 9e8);
    }

    #[test]
    fn latency_of_many_failures_is_limited() {
        let stats = Stats::default();
        for _ in 0..2000 {
            stats.begun();
            stats.ended(&Outcome::new(Duration::from_millis(1), Code::Internal), 0);
        }
        assert!(stats.latency_ns(0) <= FAILED_NS_MAX, "{}", stats.latency_ns(0));
        assert!(stats.latency_ns(10 * DECAY_NS as u64) < 1e6, "{}", stats.latency_ns(10 * DECAY_NS as u64));
        succeeded(&stats, Duration::from_secs(9), 0);
        stats.begun();
        stats.ended(&Outcome::new(Duration::from_millis(1), Code::Internal), 0);
        assert!(stats.latency_ns(0) >= 8.9e9, "a measured latency above the limit stays");
    }

    #[test]
    fn statistics_are_reset_when_it_comes_up_again() {
        let endpoint = Endpoint::new(Instance::new("a.B", "tcp://a:1"));
        succeeded(endpoint.stats(), Duration::from_secs(1), 5);
        endpoint.stats().set_state(State::Down, 6);
        assert!(!endpoint.is_healthy(6));
        assert_eq!(endpoint.stats().set_state(State::Up, 1000), State::Down);
        assert!(endpoint.is_healthy(1000) && endpoint.latency(1000).is_zero());
        assert_eq!(endpoint.slow_start_factor(1000, 1000), 0.1);
        assert_eq!(endpoint.slow_start_factor(1500, 1000), 0.5);
        assert_eq!(endpoint.slow_start_factor(9000, 1000), 1.0);
    }
}
