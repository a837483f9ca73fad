//! Peers that leave, at any moment and in any way.

use super::{Strategy, calls};
use crate::peer::Attack;

pub const ALL: &[Strategy] = &[
    Strategy { name: "a reset at every point of a call", run: resets },
    Strategy { name: "a half-close at every point of a call", run: half_closes },
    Strategy { name: "connections opened and closed", run: churn },
    Strategy { name: "many calls, then a reset", run: burst },
    Strategy { name: "calls that never end, then a reset", run: held_then_reset },
];

/// Prefixes of hello and a call, all of them in turn.
fn prefixes(attack: &Attack, mut end: impl FnMut(crate::peer::Peer)) {
    let bytes = [(attack.wire.hello)(), (attack.wire.show)(1, 0)].concat();
    let mut len = 0;
    loop {
        let mut peer = attack.silent();
        peer.push(attack, &bytes[..len]);
        end(peer);
        attack.deed();
        len = (len + 1) % (bytes.len() + 1);
        if !attack.goes_on() {
            return;
        }
    }
}

fn resets(attack: &Attack) {
    prefixes(attack, crate::peer::Peer::reset);
}

fn half_closes(attack: &Attack) {
    prefixes(attack, |mut peer| {
        peer.half_close();
        peer.read_some();
    });
}

fn churn(attack: &Attack) {
    loop {
        drop(attack.silent());
        drop(attack.open());
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn burst(attack: &Attack) {
    let batch = calls(attack, 1, 200, 100);
    loop {
        let mut peer = attack.open();
        peer.push_unread(attack, &batch);
        peer.reset();
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn held_then_reset(attack: &Attack) {
    let batch: Vec<u8> = (1..200).flat_map(|id| (attack.wire.hold)(id)).collect();
    loop {
        let mut peer = attack.open();
        peer.push(attack, &batch);
        peer.reset();
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}
