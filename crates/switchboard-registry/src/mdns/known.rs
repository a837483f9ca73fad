//! What a browser has heard, and for how long it believes it.

use super::records::Told;
use std::{collections::BTreeMap, time::Duration};
use switchboard::discover::Instance;
use tokio::time::Instant;

/// An answer that comes so soon after a farewell may have been on its way when the farewell was said: responders of
/// others answer and end at the same time.
const DOUBT: Duration = Duration::from_secs(1);

/// Farewells of a second that are remembered: whoever is on the network can say as many as it likes.
const GONE_MAX: usize = 1024;

/// What each label stands for, and until when.
#[derive(Default)]
pub(super) struct Known {
    labels: BTreeMap<String, (Vec<Instance>, Instant)>,
    /// Labels that were known when their farewell came, and until when answers are doubted.
    gone: BTreeMap<String, Instant>,
}

/// What is to be done about something that was told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum News {
    None,
    Changed,
    /// It changed, and holds for a moment only unless a question that is asked then confirms it.
    Doubted(Instant),
}

impl Known {
    /// Takes what was told.
    pub(super) fn take(&mut self, told: Told, now: Instant) -> News {
        let (label, instances, ttl) = match told {
            Told::Gone(label) => {
                let Some(_) = self.labels.remove(&label) else { return News::None };
                if self.gone.len() < GONE_MAX {
                    self.gone.insert(label, now + DOUBT);
                }
                return News::Changed;
            }
            Told::Are(label, instances, ttl) => (label, instances, ttl),
        };
        let doubted = self.gone.get(&label).copied().filter(|until| *until > now);
        let until = doubted.map_or(now + ttl, |until| (now + ttl).min(until + DOUBT));
        match self.labels.get_mut(&label) {
            Some((before, ends)) if *before == instances => {
                *ends = until;
                return News::None;
            }
            _ => self.labels.insert(label, (instances, until)),
        };
        doubted.map_or(News::Changed, News::Doubted)
    }

    /// When the next thing known ends.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.labels.values().map(|(_, until)| *until).chain(self.gone.values().copied()).min()
    }

    /// Forgets what has ended; whether there was any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.labels.len();
        self.labels.retain(|_, (_, until)| *until > now);
        self.gone.retain(|_, until| *until > now);
        self.labels.len() < before
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.labels.values().flat_map(|(instances, _)| instances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are(id: u16) -> Told {
        let instance = Instance::new("s", format!("tcp://h:{id}"));
        Told::Are("label".to_owned(), vec![instance], Duration::from_secs(45))
    }

    fn gone() -> Told {
        Told::Gone("label".to_owned())
    }

    #[test]
    fn answer_that_a_farewell_has_overtaken_is_believed_for_a_moment() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert_eq!(known.take(are(1), now), News::Changed);
        assert_eq!(known.take(gone(), now), News::Changed);
        assert_eq!(known.take(gone(), now), News::None);
        // It was on its way.
        assert_eq!(known.take(are(1), now), News::Doubted(now + DOUBT));
        assert!(!known.expire(now + DOUBT), "there is time for an answer to the question");
        assert!(known.expire(now + 2 * DOUBT) && known.instances().next().is_none());
        assert_eq!(known.ends(), None);
    }

    #[test]
    fn who_comes_back_and_answers_stays() {
        let (mut known, now) = (Known::default(), Instant::now());
        known.take(are(1), now);
        known.take(gone(), now);
        assert_eq!(known.take(are(2), now), News::Doubted(now + DOUBT));
        known.expire(now + DOUBT);
        // The answer to the question that was asked when the doubt began to be one.
        assert_eq!(known.take(are(2), now + DOUBT), News::None);
        assert!(!known.expire(now + Duration::from_secs(30)) && known.instances().count() == 1);
        assert_eq!(known.ends(), Some(now + DOUBT + Duration::from_secs(45)));
    }
}
