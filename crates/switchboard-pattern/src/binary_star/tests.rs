//! All reachable states of a pair of nodes, whatever the order of messages, requests, crashes, restarts and splits.

use super::*;
use std::collections::{HashSet, VecDeque};

/// Messages in flight in one direction. More of them add no behaviour: a node sends its state again and again.
const IN_FLIGHT_MAX: usize = 2;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Pair {
    /// States of the nodes; `None` for a node that is down.
    nodes: [Option<State>; 2],
    /// States on the way to each node.
    in_flight: [VecDeque<State>; 2],
    is_split: bool,
    /// The network between the nodes has failed for longer than the failover limit.
    was_split: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Crash(usize),
    Deliver(usize),
    Heal,
    Request(usize, bool),
    Restart(usize),
    Send(usize),
    Split,
}

const STEPS: [Step; 14] = [
    Step::Crash(0),
    Step::Crash(1),
    Step::Deliver(0),
    Step::Deliver(1),
    Step::Heal,
    Step::Request(0, false),
    Step::Request(0, true),
    Step::Request(1, false),
    Step::Request(1, true),
    Step::Restart(0),
    Step::Restart(1),
    Step::Send(0),
    Step::Send(1),
    Step::Split,
];

impl Pair {
    fn new() -> Pair {
        Pair { nodes: [None; 2], in_flight: Default::default(), is_split: false, was_split: false }
    }

    fn disconnect(&mut self) {
        self.in_flight.iter_mut().for_each(VecDeque::clear);
    }

    /// Applies a step; `None` if it is not possible, `Some(Err)` with the conflict that ends both nodes.
    fn step(&self, step: Step) -> Option<Result<Pair, Conflict>> {
        let mut next = self.clone();
        match step {
            Step::Crash(node) => {
                next.nodes[node].take()?;
                next.disconnect();
            }
            Step::Restart(node) => {
                if self.nodes[node].is_some() {
                    return None;
                }
                next.nodes[node] = Some(if node == 0 { State::Primary } else { State::Backup });
                next.disconnect();
            }
            Step::Split if !self.is_split => {
                (next.is_split, next.was_split) = (true, true);
                next.disconnect();
            }
            Step::Heal if self.is_split => next.is_split = false,
            Step::Split | Step::Heal => return None,
            Step::Send(node) => {
                let (state, to) = (self.nodes[node]?, 1 - node);
                let queue = &mut next.in_flight[to];
                if self.is_split || self.nodes[to].is_none() || queue.len() == IN_FLIGHT_MAX {
                    return None;
                }
                queue.push_back(state);
            }
            Step::Deliver(node) => {
                let peer = next.in_flight[node].pop_front()?;
                let state = self.nodes[node]?;
                match state.apply(Event::Peer(peer)) {
                    Ok((state, _)) => next.nodes[node] = Some(state),
                    Err(conflict) => return Some(Err(conflict)),
                }
            }
            Step::Request(node, is_peer_silent) => {
                // A peer that runs and is connected sends several states within the failover limit.
                let can_be_silent = self.is_split || self.nodes[1 - node].is_none();
                if is_peer_silent && !can_be_silent {
                    return None;
                }
                let event = Event::Request { is_peer_silent };
                let (state, outcome) = self.nodes[node]?.apply(event).expect("requests do not conflict");
                assert_eq!(outcome == Outcome::Accepted, state == State::Active);
                next.nodes[node] = Some(state);
            }
        }
        Some(Ok(next))
    }

    fn are_both_active(&self) -> bool {
        self.nodes.iter().all(|node| *node == Some(State::Active))
    }
}

/// Visits all states that any sequence of steps reaches.
#[test]
fn both_are_active_in_the_split_case_only() {
    let (mut known, mut open) = (HashSet::new(), VecDeque::from([(Pair::new(), Vec::new())]));
    let mut splits = 0;
    while let Some((pair, path)) = open.pop_front() {
        for step in STEPS {
            let mut path: Vec<Step> = path.clone();
            path.push(step);
            match pair.step(step) {
                None => {}
                Some(Err(conflict)) => {
                    let is_allowed = pair.was_split && conflict == Conflict::BothActive;
                    assert!(is_allowed, "{conflict:?} after {path:?}");
                }
                Some(Ok(next)) => {
                    if next.are_both_active() {
                        assert!(next.was_split, "both are active after {path:?}");
                        splits += 1;
                    }
                    if known.insert(next.clone()) {
                        open.push_back((next, path));
                    }
                }
            }
        }
    }
    assert!(splits > 0, "the split case is reached");
    assert!(known.len() > 100, "{}", known.len());
}

#[test]
fn the_machine_of_the_guide() {
    use State::{Active, Backup, Passive, Primary};
    let peer = |state: State, peer| state.apply(Event::Peer(peer)).map(|(next, _)| next);
    let request = |state: State, is_peer_silent| state.apply(Event::Request { is_peer_silent }).unwrap();
    assert_eq!(peer(Primary, Backup), Ok(Active));
    assert_eq!(peer(Primary, Active), Ok(Passive));
    assert_eq!(peer(Primary, Passive), Ok(Primary));
    assert_eq!(peer(Backup, Active), Ok(Passive));
    assert_eq!(peer(Backup, Primary), Ok(Backup));
    assert_eq!(peer(Active, Passive), Ok(Active));
    assert_eq!(peer(Active, Active), Err(Conflict::BothActive));
    assert_eq!(peer(Passive, Primary), Ok(Active));
    assert_eq!(peer(Passive, Backup), Ok(Active));
    assert_eq!(peer(Passive, Passive), Err(Conflict::BothPassive));
    assert_eq!(peer(Primary, Primary), Err(Conflict::SameRole));
    assert_eq!(peer(Backup, Backup), Err(Conflict::SameRole));
    assert_eq!(request(Primary, false), (Primary, Outcome::Refused));
    assert_eq!(request(Primary, true), (Active, Outcome::Accepted));
    assert_eq!(request(Backup, true), (Backup, Outcome::Refused));
    assert_eq!(request(Active, false), (Active, Outcome::Accepted));
    assert_eq!(request(Passive, false), (Passive, Outcome::Refused));
    assert_eq!(request(Passive, true), (Active, Outcome::Accepted));
}

#[test]
fn states_are_read_as_they_are_written_and_other_bytes_are_ignored() {
    for state in [State::Primary, State::Backup, State::Active, State::Passive] {
        assert_eq!(State::from_frame(state.number().to_string().as_bytes()), Some(state));
    }
    for frame in [&b""[..], b"0", b"5", b"33", b"3 ", &[3], &[0xFF; 300]] {
        assert_eq!(State::from_frame(frame), None);
    }
}
