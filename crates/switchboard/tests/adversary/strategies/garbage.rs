//! Peers that send random bytes.

use super::Strategy;
use crate::{peer::Attack, random::Random};

pub const ALL: &[Strategy] = &[
    Strategy { name: "random bytes at first", run: random_first },
    Strategy { name: "random bytes after the handshake", run: random_later },
    Strategy { name: "calls with changed bytes", run: changed },
];

fn random_first(attack: &Attack) {
    let mut random = Random(1);
    loop {
        let len = random.next() as usize % 2000;
        attack.silent().push(attack, &random.bytes(len));
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn random_later(attack: &Attack) {
    let mut random = Random(2);
    loop {
        let mut peer = attack.open();
        let len = random.next() as usize % 2000;
        peer.push(attack, &random.bytes(len));
        peer.read_some();
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}

fn changed(attack: &Attack) {
    let mut random = Random(3);
    let calls = [(attack.wire.show)(1, 20), (attack.wire.large_head)(2), (attack.wire.show)(3, 20)].concat();
    loop {
        let mut bytes = calls.clone();
        for _ in 0..=random.next() % 4 {
            let at = random.next() as usize % bytes.len().min(300);
            bytes[at] = random.next() as u8;
        }
        let mut peer = attack.open();
        peer.push(attack, &bytes);
        peer.read_some();
        attack.deed();
        if !attack.goes_on() {
            return;
        }
    }
}
