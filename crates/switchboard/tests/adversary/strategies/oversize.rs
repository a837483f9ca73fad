//! Peers that send, declare or unfold more than they may.

use super::{Strategy, greeted};
use crate::peer::{Attack, Reaction};

pub const ALL: &[Strategy] = &[
    Strategy { name: "bytes that follow no rule", run: wrong },
    Strategy { name: "large messages that do not end", run: unended },
    Strategy { name: "compressed bombs", run: bombs },
];

/// Each is refused on its connection, or ends it: the peer does not wait in vain.
fn wrong(attack: &Attack) {
    loop {
        for (what, bytes) in (attack.wire.wrong)() {
            let mut peer = greeted(attack);
            peer.push(attack, &bytes);
            if peer.any_reaction() == Reaction::Silent {
                attack.fault(format!("{what}: neither an error nor the end of the connection"));
            }
            attack.deed();
        }
        if !attack.goes_on() {
            return;
        }
    }
}

/// All but the last byte of large calls, on many connections.
fn unended(attack: &Attack) {
    let call = (attack.wire.show)(1, if attack.wire.large < 60_000 { attack.wire.large } else { 900_000 });
    let mut peers = Vec::new();
    for _ in 0..8 {
        let mut peer = attack.open();
        peer.push(attack, &call[..call.len() - 1]);
        peers.push(peer);
        attack.deed();
    }
    attack.rest();
}

fn bombs(attack: &Attack) {
    let bombs = (attack.wire.bombs)();
    loop {
        for (what, bytes) in &bombs {
            let mut peer = greeted(attack);
            peer.push(attack, bytes);
            if peer.any_reaction() == Reaction::Silent {
                attack.fault(format!("a bomb, {what}: neither an error nor the end of the connection"));
            }
            attack.deed();
        }
        if !attack.goes_on() || bombs.is_empty() {
            return attack.deed();
        }
    }
}
