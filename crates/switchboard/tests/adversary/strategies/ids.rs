//! Peers that use invalid numbers for their calls.

use super::Strategy;
use crate::peer::Attack;

pub const ALL: &[Strategy] = &[
    Strategy { name: "the id of a call in flight again", run: same_id },
    Strategy { name: "ids at the edges", run: edges },
    Strategy { name: "ids that go down", run: downwards },
];

/// Sends rounds of `bytes` on connections that may end.
fn rounds(attack: &Attack, mut bytes: impl FnMut() -> Vec<u8>) {
    loop {
        let mut peer = attack.open();
        for _ in 0..20 {
            if !peer.push(attack, &bytes()) {
                break;
            }
            peer.read_some();
        }
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn same_id(attack: &Attack) {
    let wire = attack.wire;
    let call =
        [(wire.hold)(7), (wire.hold)(7), (wire.show)(7, 0), (wire.hold)(7), (wire.unknown)(7)].concat();
    rounds(attack, || call.clone());
}

fn edges(attack: &Attack) {
    let ids = [0, 1, 0x7F, 0x80, 0x7FFF, 0xFFFF, 0x1F_FFFF, 0x0FFF_FFFF, 0x3FFF_FFFF];
    let calls: Vec<u8> = ids.iter().flat_map(|id| (attack.wire.show)(*id, 0)).collect();
    rounds(attack, || calls.clone());
}

fn downwards(attack: &Attack) {
    let mut id = 2_000_000;
    rounds(attack, || {
        id -= 7;
        (attack.wire.show)(id, 0)
    });
}
