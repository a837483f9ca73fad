//! Peers that do not read the replies to their requests.

use super::{Strategy, calls};
use crate::peer::Attack;

pub const ALL: &[Strategy] = &[
    Strategy { name: "large replies never read", run: |attack| unread(attack, attack.wire.large) },
    Strategy { name: "small replies never read", run: |attack| unread(attack, 0) },
    Strategy { name: "answers to cheap frames never read", run: cheap_unread },
    Strategy { name: "large replies read byte by byte", run: byte_by_byte },
];

fn unread(attack: &Attack, padding: usize) {
    let mut peers: Vec<_> = (0..4).map(|_| attack.open()).collect();
    let (mut full, mut first) = (Vec::new(), 1);
    loop {
        let batch = calls(attack, first, 20, padding);
        first += 20;
        for mut peer in std::mem::take(&mut peers) {
            // A peer that the server no longer reads keeps its connection.
            let list = if peer.push_unread(attack, &batch) { &mut peers } else { &mut full };
            list.push(peer);
        }
        attack.deed();
        if !attack.goes_on() || peers.is_empty() {
            return attack.rest();
        }
    }
}

fn cheap_unread(attack: &Attack) {
    let mut peers = Vec::new();
    for (_, frames) in (attack.wire.cheap)() {
        let mut peer = attack.open();
        let batch = frames.repeat((32 << 10) / frames.len() + 1);
        // Enough that answers fill every buffer on their way, if the server still reads.
        for _ in 0..32 {
            if !peer.push_unread(attack, &batch) || !attack.goes_on() {
                break;
            }
        }
        peers.push(peer);
        attack.deed();
    }
    attack.deed();
    attack.rest();
}

fn byte_by_byte(attack: &Attack) {
    let mut peer = attack.open();
    peer.push_unread(attack, &calls(attack, 1, 20, attack.wire.large));
    loop {
        peer.read_byte();
        attack.deed();
        if !attack.goes_on() {
            return;
        }
        std::thread::yield_now();
    }
}
