//! Peers that send slowly or stop in the middle.

use super::{Strategy, greeted};
use crate::peer::{Attack, Peer, Reaction};

pub const ALL: &[Strategy] = &[
    Strategy { name: "a call byte by byte", run: call_byte_by_byte },
    Strategy { name: "the largest head byte by byte", run: largest_head_byte_by_byte },
    Strategy { name: "half calls left open", run: half_calls },
    Strategy { name: "silence from the start", run: silence },
    Strategy { name: "silence after the handshake", run: silence_after_hello },
];

/// Sends a call in pieces of one byte; in the middle of a long one, of 64.
fn bytewise(attack: &Attack, peer: &mut Peer, call: &[u8]) {
    let (edge, mut at) = (if attack.is_long() { 5000 } else { 200 }, 0);
    while at < call.len() {
        let len = if (edge..call.len().saturating_sub(edge)).contains(&at) { 64 } else { 1 };
        let end = call.len().min(at + len);
        if !peer.push(attack, &call[at..end]) && !peer.is_open() {
            return;
        }
        at = end;
    }
}

fn call_byte_by_byte(attack: &Attack) {
    loop {
        let mut peer = attack.open();
        bytewise(attack, &mut peer, &(attack.wire.show)(1, 0));
        let reaction = peer.reaction();
        if attack.wire.readable && reaction != Reaction::Answered {
            attack.fault(format!("a call byte by byte: {reaction:?}"));
        }
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn largest_head_byte_by_byte(attack: &Attack) {
    loop {
        let mut peer = greeted(attack);
        bytewise(attack, &mut peer, &(attack.wire.large_head)(2));
        // A wire may have a limit of its own, and refuse.
        if peer.any_reaction() == Reaction::Silent {
            attack.fault("the largest head byte by byte got no answer".to_owned());
        }
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn half_calls(attack: &Attack) {
    let call = (attack.wire.show)(1, attack.wire.large.min(10_000));
    let mut peers = Vec::new();
    for part in 1..17 {
        let mut peer = attack.open();
        peer.push(attack, &call[..call.len() * part / 17]);
        peers.push(peer);
        attack.deed();
    }
    attack.rest();
}

fn silence(attack: &Attack) {
    let peers: Vec<_> = (0..16).map(|_| attack.silent()).collect();
    attack.deed();
    attack.rest();
    drop(peers);
}

fn silence_after_hello(attack: &Attack) {
    let peers: Vec<_> = (0..16).map(|_| attack.open()).collect();
    attack.deed();
    attack.rest();
    drop(peers);
}
