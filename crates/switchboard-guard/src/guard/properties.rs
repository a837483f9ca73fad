//! Property tests of admission for arbitrary guards and arbitrary order of calls: a call takes all that it
//! needs or nothing, and a panic loses nothing.

use super::{
    Admission, BatchScope, Chain, Concurrency, Fair, Guarding, Guards, Permit, Rate,
    concurrency::{Adaptive, Limiter, Sample},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use switchboard_core::{
    Call, Cx, Peer, Reply, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
};
use switchboard_wire::{Codec, Kind, Metadata, MethodInfo, MethodTable, ServiceInfo, Status};

static METHODS: [MethodInfo; 2] = [MethodInfo::new("One", Kind::Unary), MethodInfo::new("Two", Kind::Unary)];
static SERVICE: ServiceInfo = ServiceInfo { name: "test.Guarded", methods: &METHODS, descriptor: &[] };
/// Number of runs of each property, each with its own guards and calls.
const RUNS: u64 = 300;
const CALLS: u64 = 200;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn is_one_of(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// The parts of a call that rates use as keys.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct CallKeys {
    method: u16,
    /// Values of the metadata `first` and `second`.
    values: [u8; 2],
}

impl CallKeys {
    fn any(random: &mut Random) -> CallKeys {
        let values = [random.below(3) as u8, random.below(3) as u8];
        CallKeys { method: random.below(2) as u16, values }
    }

    fn call(self, peer: &Arc<Peer>) -> Call {
        let mut metadata = Metadata::new();
        for (name, value) in ["first", "second"].into_iter().zip(self.values) {
            metadata.insert(name, value.to_string()).unwrap();
        }
        let cx = Cx::new(peer, &SERVICE, &METHODS[usize::from(self.method)], None, metadata);
        Call::new(self.method, Codec::Proto, RequestBody::One(Bytes::new()), cx)
    }
}

/// A rate that is not refilled during a test.
#[derive(Clone, Copy, Debug)]
struct Bound {
    burst: u32,
    /// Key of the rate: 0 counts all calls together, 1 and 2 by a metadata value, 3 by method.
    key: u64,
    /// Counts only calls of this method, if set.
    method: Option<u16>,
}

impl Bound {
    fn any(random: &mut Random) -> Bound {
        let method = if random.is_one_of(3) { Some(random.below(2) as u16) } else { None };
        Bound { burst: 1 + random.below(40) as u32, key: random.below(4), method }
    }

    fn rate(self) -> Rate {
        let rate = Rate::per_second(1e-6).burst(self.burst).methods(pattern(self.method));
        match self.key {
            0 => rate,
            1 => rate.by_metadata("first"),
            2 => rate.by_metadata("second"),
            _ => rate.by_method(),
        }
    }

    fn covers(self, call: CallKeys) -> bool {
        self.method.is_none_or(|method| method == call.method)
    }

    /// Returns the key by which this rate counts the call.
    fn key_of(self, call: CallKeys) -> u8 {
        match self.key {
            0 => 0,
            1 => call.values[0],
            2 => call.values[1],
            _ => call.method as u8,
        }
    }
}

fn pattern(method: Option<u16>) -> String {
    format!("test.Guarded/{}", method.map_or("*", |method| METHODS[usize::from(method)].name))
}

fn peer() -> Arc<Peer> {
    Arc::new(Peer::without_connection(switchboard_wire::WireId::LOCAL, "local".into()))
}

fn build(guards: Guards) -> Guarding {
    let mut table = MethodTable::default();
    table.add(&SERVICE).unwrap();
    guards.build(&table, false).unwrap()
}

fn reply() -> Reply {
    let body = ReplyBody::One(Bytes::new().into());
    ReplyParts { metadata: Metadata::new(), trailers: Metadata::new(), body }.into()
}

/// Passes the call through the guards; abandons it if it would wait.
fn begin<'a>(chain: &'a Arc<Chain>, call: &mut Call) -> Result<Permit<'a>> {
    match chain.begin(call) {
        Admission::Admitted(permit) => Ok(permit),
        Admission::Rejected(status) => Err(status),
        Admission::Queued(_) => Err(Status::unavailable("it waits")),
    }
}

/// A call that one guard rejects takes nothing from the others: each call runs if every rate has a token and
/// every limit a permit, and the counts equal the calls that ran.
#[test]
fn call_takes_all_that_it_needs_or_nothing() {
    for run in 1..=RUNS {
        let mut random = Random(run.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let bounds: Vec<_> = (0..random.below(5)).map(|_| Bound::any(&mut random)).collect();
        let mut guards =
            Guards { rates: bounds.iter().map(|bound| bound.rate()).collect(), ..Guards::default() };
        // One limit of the server and one of each method.
        let limits = [1 + random.below(8) as u32, 1 + random.below(5) as u32, 1 + random.below(5) as u32];
        guards.concurrency = Some(Concurrency::Fixed(limits[0]));
        let one = |method: u16| (pattern(Some(method)), Concurrency::Fixed(limits[1 + usize::from(method)]));
        guards.methods = vec![one(0), one(1)];
        let guarding = build(guards);
        let (chain, peer) = (guarding.chain(0).unwrap(), peer());
        let mut taken: HashMap<(usize, u8), u32> = HashMap::new();
        let mut running: Vec<(CallKeys, Permit<'_>)> = Vec::new();
        let mut batch = None;
        for at in 0..CALLS {
            match random.below(4) {
                0 => batch = if random.is_one_of(2) { Some(BatchScope::begin()) } else { None },
                1 if !running.is_empty() => {
                    let (_, permit) = running.swap_remove(random.below(running.len() as u64) as usize);
                    match random.below(3) {
                        0 => drop(permit),
                        1 => drop(permit.end(Ok(reply()))),
                        _ => drop(permit.end(Err(Status::not_found("x")))),
                    }
                }
                _ => {
                    let kept = CallKeys::any(&mut random);
                    let covering = || bounds.iter().enumerate().filter(|(_, bound)| bound.covers(kept));
                    let has_tokens = covering().all(|(at, bound)| {
                        taken.get(&(at, bound.key_of(kept))).is_none_or(|n| *n < bound.burst)
                    });
                    let of_method = running.iter().filter(|(other, _)| other.method == kept.method).count();
                    let has_permits = running.len() < limits[0] as usize
                        && of_method < limits[1 + usize::from(kept.method)] as usize;
                    let mut call = kept.call(&peer);
                    match begin(&chain, &mut call) {
                        Ok(permit) => {
                            assert!(has_tokens && has_permits, "run {run}, call {at}: {kept:?} was admitted");
                            covering().for_each(|(at, bound)| {
                                *taken.entry((at, bound.key_of(kept))).or_default() += 1;
                            });
                            running.push((kept, permit));
                        }
                        Err(status) => {
                            assert!(!(has_tokens && has_permits), "run {run}, call {at}: {kept:?}: {status}");
                        }
                    }
                }
            }
        }
        drop((running, batch));
        assert!(guarding.concurrency().iter().all(|stats| stats.in_flight == 0), "run {run}");
    }
}

/// Limit algorithm that panics at random.
struct Panics(Random);

impl Adaptive for Panics {
    fn sample(&mut self, _: Sample) -> u32 {
        assert!(!self.0.is_one_of(3), "a limit that panics while it learns");
        4
    }
}

/// For any outcome of calls and any panics in between, all permits are free at the end.
#[test]
fn panic_in_a_guard_loses_no_permit() {
    for run in 1..=RUNS {
        let mut random = Random(run.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let panics = |what: &str, random: &mut Random| {
            let adaptive = Panics(Random(1 + random.below(1 << 40)));
            Arc::new(Limiter::new(what.into(), &Concurrency::auto()).learning_by(Box::new(adaptive)))
        };
        let mut guards = Guards { concurrency: Some(Concurrency::Fixed(1000)), ..Guards::default() };
        if random.is_one_of(2) {
            guards.fair = Some(Fair::by_metadata("first"));
        }
        let guarding = build(guards);
        let mut chain = Arc::into_inner(guarding.into_chains().remove(0)).unwrap();
        for method in &mut chain.methods {
            method.limiters.extend([panics("service", &mut random), panics("method", &mut random)]);
        }
        let limiters: Vec<_> = chain.methods.iter().flat_map(|method| method.limiters.clone()).collect();
        let (chain, peer) = (Arc::new(chain), peer());
        let mut batch = None;
        let mut running = Vec::new();
        for _ in 0..CALLS {
            if random.is_one_of(4) {
                batch = if random.is_one_of(2) { Some(BatchScope::begin()) } else { None };
            }
            let mut call = CallKeys::any(&mut random).call(&peer);
            let begun = catch_unwind(AssertUnwindSafe(|| begin(&chain, &mut call)));
            running.extend(begun.ok().and_then(Result::ok));
            let end = random.below(8);
            let Some(permit) = (end < 6).then(|| running.pop()).flatten() else { continue };
            let _ = catch_unwind(AssertUnwindSafe(|| match end {
                0 => drop(permit),
                1 => {
                    let _permit = permit;
                    panic!("a handler");
                }
                2 => drop(permit.end(Err(Status::not_found("x")))),
                _ => drop(permit.end(Ok(reply()))),
            }));
        }
        for permit in running {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(permit)));
        }
        drop(batch);
        for limiter in &limiters {
            assert_eq!(limiter.stats().in_flight, 0, "run {run}: {limiter:?}");
        }
    }
}
