//! Timers of many subscribers: slots of one second, with links in the subscribers' own records.

/// Number of slots; later timers go around.
const SLOTS: usize = 512;

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// The part of a record that a wheel owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerLink {
    previous: u32,
    next: u32,
    /// Seconds since the start of the wheel; 0 if the timer is not set.
    due: u32,
}

impl TimerLink {
    pub(crate) const UNSET: TimerLink = TimerLink { previous: NONE, next: NONE, due: 0 };
}

/// Where the links of the records are.
pub(crate) trait TimerLinks {
    fn link(&mut self, index: u32) -> &mut TimerLink;
}

/// A wheel of timers, each in a list of those that are due in the same second of a turn of the wheel.
///
/// Setting and clearing a timer touch the record and its two neighbours, and allocate nothing.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    first: Box<[u32; SLOTS]>,
    /// The last second whose timers were fired.
    now: u32,
    set: usize,
}

impl TimerWheel {
    pub(crate) fn new() -> TimerWheel {
        TimerWheel { first: Box::new([NONE; SLOTS]), now: 0, set: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Sets the timer of a record to `seconds` from now, at least one, in place of an earlier one.
    pub(crate) fn set(&mut self, index: u32, seconds: u32, links: &mut impl TimerLinks) {
        self.clear(index, links);
        let due = self.now.saturating_add(seconds.max(1));
        let slot = due as usize % SLOTS;
        let next = std::mem::replace(&mut self.first[slot], index);
        *links.link(index) = TimerLink { previous: NONE, next, due };
        if next != NONE {
            links.link(next).previous = index;
        }
        self.set += 1;
    }

    /// Clears the timer of a record, if it is set.
    pub(crate) fn clear(&mut self, index: u32, links: &mut impl TimerLinks) {
        let TimerLink { previous, next, due } = std::mem::replace(links.link(index), TimerLink::UNSET);
        if due == 0 {
            return;
        }
        match previous {
            NONE => self.first[due as usize % SLOTS] = next,
            previous => links.link(previous).next = next,
        }
        if next != NONE {
            links.link(next).previous = previous;
        }
        self.set -= 1;
    }

    /// Advances to `now`, in seconds since the start of the wheel, and moves the records whose timers are due to
    /// `due`. Their timers are cleared. A jump of more than a turn of the wheel looks at each slot once.
    pub(crate) fn advance(&mut self, now: u32, due: &mut Vec<u32>, links: &mut impl TimerLinks) {
        let seconds = now.saturating_sub(self.now).min(SLOTS as u32);
        let from = now - seconds;
        self.now = now.max(self.now);
        for second in from + 1..=now {
            let mut index = self.first[second as usize % SLOTS];
            while index != NONE {
                let link = *links.link(index);
                if link.due <= now {
                    self.clear(index, links);
                    due.push(index);
                }
                index = link.next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Links(Vec<TimerLink>);

    impl TimerLinks for Links {
        fn link(&mut self, index: u32) -> &mut TimerLink {
            &mut self.0[index as usize]
        }
    }

    /// Any order of setting, clearing and advancing fires each timer once, in its second.
    #[test]
    fn timers_fire_once_when_they_are_due() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut wheel, mut links) = (TimerWheel::new(), Links(vec![TimerLink::UNSET; 64]));
            let (mut model, mut now) = (BTreeMap::new(), 0);
            for _ in 0..2000 {
                let index = random.u32(..64);
                match random.u8(..4) {
                    0 | 1 => {
                        let seconds = random.u32(1..1500);
                        wheel.set(index, seconds, &mut links);
                        model.insert(index, now + seconds);
                    }
                    2 => {
                        wheel.clear(index, &mut links);
                        model.remove(&index);
                    }
                    _ => {
                        let most = if random.u8(..10) == 0 { 2000 } else { 20 };
                        now += random.u32(..most);
                        let mut due = Vec::new();
                        wheel.advance(now, &mut due, &mut links);
                        due.sort_unstable();
                        let expected: Vec<u32> =
                            model.iter().filter(|(_, at)| **at <= now).map(|(index, _)| *index).collect();
                        assert_eq!(due, expected, "seed {seed}, second {now}");
                        model.retain(|_, at| *at > now);
                    }
                }
                assert_eq!(wheel.set, model.len());
            }
        }
    }
}
