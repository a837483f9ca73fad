//! Strategies of hostile peers, one file a family.

mod endings;
mod floods;
mod garbage;
mod ids;
mod oversize;
mod slow;
mod unread;

use super::peer::{Attack, Peer, Reaction};

/// Something that a hostile peer does until the attack is over, and at least once.
pub struct Strategy {
    pub name: &'static str,
    pub run: fn(&Attack),
}

/// Every strategy, against every wire.
pub fn all() -> impl Iterator<Item = &'static Strategy> {
    [slow::ALL, unread::ALL, floods::ALL, ids::ALL, oversize::ALL, garbage::ALL, endings::ALL]
        .into_iter()
        .flatten()
}

/// So many whole calls, from `first` on.
fn calls(attack: &Attack, first: u32, count: u32, padding: usize) -> Vec<u8> {
    (first..first + count).flat_map(|id| (attack.wire.show)(id, padding)).collect()
}

/// A connection on which a call was answered.
fn greeted(attack: &Attack) -> Peer {
    let mut peer = attack.open();
    if attack.wire.readable {
        peer.push(attack, &(attack.wire.show)(1, 0));
        if peer.reaction() != Reaction::Answered {
            attack.fault(format!("the first call of a connection was not answered: {:?}", peer.heard()));
        }
        peer.forget();
    }
    peer
}
