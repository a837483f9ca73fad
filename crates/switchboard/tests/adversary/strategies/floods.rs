//! Peers that send as much as they can.

use super::{Strategy, calls};
use crate::peer::Attack;

pub const ALL: &[Strategy] = &[
    Strategy { name: "small calls without a pause", run: small_calls },
    Strategy { name: "cheap frames without a pause", run: cheap_frames },
    Strategy { name: "methods that do not exist", run: unknown_methods },
    Strategy { name: "largest heads without a pause", run: largest_heads },
    Strategy { name: "calls that never end", run: held_calls },
    Strategy { name: "one stuck call among small ones", run: stuck_call },
    Strategy { name: "calls begun and cancelled", run: cancelled_calls },
    Strategy { name: "cancels among calls that never end", run: cancels_among_held },
];

/// Sends what `batch` makes of a count, on a new connection when one ends.
fn flood(attack: &Attack, mut batch: impl FnMut(u32) -> Vec<u8>) {
    let (mut peer, mut round) = (attack.open(), 0);
    loop {
        if !peer.push(attack, &batch(round)) {
            if attack.goes_on() && !peer.is_open() {
                peer = attack.open();
                round = 0;
                attack.deed();
                continue;
            }
            return;
        }
        while peer.read_some() > 0 {}
        attack.deed();
        round += 1;
        // Also where there is nothing left to send.
        std::thread::yield_now();
        if !attack.goes_on() {
            return;
        }
    }
}

fn small_calls(attack: &Attack) {
    flood(attack, |round| calls(attack, 1 + round * 100, 100, 0));
}

fn cheap_frames(attack: &Attack) {
    let all = (attack.wire.cheap)();
    if all.is_empty() {
        return attack.deed();
    }
    let batches: Vec<Vec<u8>> =
        all.iter().map(|(_, frames)| frames.repeat((32 << 10) / frames.len() + 1)).collect();
    // One kind after the other, each on a connection of its own.
    let mut peers: Vec<_> = batches.iter().map(|_| attack.open()).collect();
    loop {
        for (peer, batch) in peers.iter_mut().zip(&batches) {
            if !peer.push(attack, batch) && attack.goes_on() {
                *peer = attack.open();
            }
            while peer.read_some() > 0 {}
            attack.deed();
        }
        if !attack.goes_on() {
            return;
        }
    }
}

fn unknown_methods(attack: &Attack) {
    flood(attack, |round| {
        (1 + round * 50..51 + round * 50).flat_map(|id| (attack.wire.unknown)(id)).collect()
    });
}

fn largest_heads(attack: &Attack) {
    flood(attack, |round| {
        (1 + round * 4..5 + round * 4).flat_map(|id| (attack.wire.large_head)(id)).collect()
    });
}

fn held_calls(attack: &Attack) {
    flood_behind(attack, |round| {
        (1 + round * 50..51 + round * 50).flat_map(|id| (attack.wire.hold)(id)).collect()
    });
}

fn stuck_call(attack: &Attack) {
    flood_behind(attack, |round| {
        let mut batch = if round == 0 { (attack.wire.hold)(1) } else { Vec::new() };
        batch.extend(calls(attack, 2 + round * 50, 50, 0));
        batch
    });
}

/// A flood of batches of fifty calls, and then nothing where the wire has a limit of calls behind one that waits.
fn flood_behind(attack: &Attack, mut batch: impl FnMut(u32) -> Vec<u8>) {
    let rounds = attack.wire.behind_max / 50;
    flood(attack, |round| if round < rounds { batch(round) } else { Vec::new() });
}

fn cancelled_calls(attack: &Attack) {
    let Some(cancel) = attack.wire.cancel else { return attack.deed() };
    flood(attack, |round| {
        let ids = 1 + round * 50..51 + round * 50;
        ids.flat_map(|id| [(attack.wire.hold)(id), cancel(id)].concat()).collect()
    });
}

/// Cancels of calls that do not exist, while very many exist.
fn cancels_among_held(attack: &Attack) {
    let Some(cancel) = attack.wire.cancel else { return attack.deed() };
    flood(attack, |round| {
        if round == 0 {
            return (1..900).flat_map(|id| (attack.wire.hold)(id)).collect();
        }
        let last = 2_000_000 + round * 200;
        (last..last + 200).flat_map(cancel).collect()
    });
}
