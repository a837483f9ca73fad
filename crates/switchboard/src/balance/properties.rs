//! What holds of every balancer: calls are spread as its kind promises, also when an endpoint fails and comes back, and
//! when one joins.

use super::{testing::*, *};
use crate::discover::Instance;
use std::collections::HashSet;

/// Endpoints of the fleets here.
const COUNT: usize = 10;
const CALLS: u64 = 20_000;

/// Every balancer, by its name in URLs; whether it goes by key; and how far shares may be from the mean.
fn all() -> Vec<(&'static str, Box<dyn Balance>, bool, f64)> {
    vec![
        ("p2c", Box::new(P2c), false, 0.1),
        ("random", Box::new(Random), false, 0.1),
        ("round_robin", Box::new(RoundRobin::default()), false, 0.001),
        ("weighted", Box::new(WeightedRoundRobin::default()), false, 0.001),
        ("least_active", Box::new(LeastActive), false, 0.1),
        ("ping", Box::new(PingWeighted::default()), false, 0.001),
        ("closest", Box::new(Closest::to(1.0, 2.0)), false, 0.1),
        ("ketama", Box::new(Ketama::new()), true, 0.35),
        ("bounded", Box::new(Ketama::new().bounded(1.25)), true, 0.35),
        ("jump", Box::new(Jump), true, 0.1),
    ]
}

/// So many endpoints at addresses of their own.
fn addressed(count: usize) -> Endpoints {
    let endpoint = |at| {
        let instance = Instance::new("a.B", format!("tcp://10.0.0.{at}:1")).id(format!("{at:03}"));
        Endpoint::new(instance.tag("latitude", "50").tag("longitude", "10"))
    };
    Endpoints::new((0..count).map(endpoint).collect())
}

/// Who takes the call of each key, one after the other.
fn owners(balance: &dyn Balance, set: &Endpoints, now_ns: u64) -> Vec<usize> {
    let owner = |call: u64| {
        let key = mix(call).to_le_bytes();
        let pick = Pick::new("a.B/C", now_ns, mix(call ^ now_ns)).with_key(Some(&key));
        let at = balance.pick(set, &pick).expect("somebody takes it");
        assert!(pick.takes(&set[at]));
        at
    };
    (0..CALLS).map(owner).collect()
}

fn counted(owners: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; COUNT + 1];
    owners.iter().for_each(|at| shares[*at] += 1);
    shares
}

/// Whether those at `of` share all calls, each within `part` of the mean.
fn is_even(shares: &[usize], of: &[usize], part: f64) -> bool {
    let mean = CALLS as f64 / of.len() as f64;
    let near = |at: &usize| (shares[*at] as f64 - mean).abs() <= mean * part + 1.0;
    of.iter().all(near) && of.iter().map(|at| shares[*at]).sum::<usize>() == CALLS as usize
}

#[test]
fn calls_are_even_also_without_one_and_when_it_is_back() {
    for (name, balance, keyed, part) in all() {
        let set = addressed(COUNT);
        let everybody: Vec<_> = (0..COUNT).collect();
        let before = owners(&*balance, &set, 0);
        assert!(is_even(&counted(&before), &everybody, part), "{name}: {:?}", counted(&before));
        set[3].stats().eject(10);
        let without = owners(&*balance, &set, 5);
        let others: Vec<_> = everybody.iter().copied().filter(|at| *at != 3).collect();
        // The next on a ring gets what was that one's.
        let part = if keyed { part + 0.6 } else { part };
        assert!(is_even(&counted(&without), &others, part), "{name}: {:?}", counted(&without));
        let back = owners(&*balance, &set, 20);
        if keyed {
            assert_eq!(before, back, "{name}: who is back has its keys again");
            let moved = before.iter().zip(&without).filter(|(before, without)| before != without);
            assert!(moved.into_iter().all(|(before, _)| *before == 3), "{name}: others keep theirs");
        } else {
            assert!(is_even(&counted(&back), &everybody, part), "{name}: {:?}", counted(&back));
        }
    }
}

#[test]
fn keys_move_only_to_who_joins_and_no_more_than_its_share() {
    for (name, balance, _, _) in all().into_iter().filter(|(_, _, keyed, _)| *keyed) {
        let (before, after) =
            (owners(&*balance, &addressed(COUNT), 0), owners(&*balance, &addressed(COUNT + 1), 0));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, after)| **after == COUNT), "{name}");
        let share = CALLS as f64 / (COUNT + 1) as f64;
        assert!((moved.len() as f64 - share).abs() < share * 0.35, "{name}: {} of {share}", moved.len());
    }
}

#[test]
fn who_joins_gets_its_share_at_once() {
    for (name, balance, _, part) in all() {
        let everybody: Vec<_> = (0..=COUNT).collect();
        owners(&*balance, &addressed(COUNT), 0);
        let shares = counted(&owners(&*balance, &addressed(COUNT + 1), 0));
        assert!(is_even(&shares, &everybody, part + 0.05), "{name}: {shares:?}");
    }
}

#[test]
fn weights_count_where_they_are_said_to() {
    let weights = [100, 200, 300, 400];
    for (name, balance, _, part) in all() {
        if !["p2c", "random", "weighted", "least_active", "ketama"].contains(&name) {
            continue;
        }
        let set = fleet(&weights);
        let (mut shares, mut running) = (vec![0; 4], std::collections::VecDeque::new());
        for call in 0..CALLS {
            let key = mix(call).to_le_bytes();
            let pick = Pick::new("a.B/C", call * 1000, mix(call)).with_key(Some(&key));
            let at = balance.pick(&set, &pick).unwrap();
            shares[at] += 1;
            // A hundred in flight, all of which take the same time.
            set[at].stats().begun();
            running.push_back((at, call));
            if running.len() > 100 {
                let (at, begun) = running.pop_front().unwrap();
                let took = std::time::Duration::from_micros(call - begun);
                set[at].stats().ended(&Outcome::new(took, Code::Ok), call * 1000);
            }
        }
        // Those that look at what is in flight come near; who compares only two comes less near.
        let part = if name == "p2c" { 0.25 } else { part.max(0.1) };
        assert!(even(&set, &shares, part), "{name}: {shares:?}");
    }
}

#[test]
fn subsets_keep_most_of_their_servers_when_one_joins() {
    let names: Vec<String> = (0..301).map(|at| format!("server-{at}")).collect();
    let of = |count: usize, client| {
        subset(names[..count].iter().map(String::as_str), client, 10)
            .into_iter()
            .map(str::to_owned)
            .collect::<HashSet<_>>()
    };
    let kept = |client| of(300, client).intersection(&of(301, client)).count();
    assert!((0..300).all(|client| kept(client) >= 9), "one at most is another");
}
