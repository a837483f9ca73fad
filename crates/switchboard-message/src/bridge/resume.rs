//! Positions at which a direction of a bridge continues.

use super::{copy::Copier, trail};
use crate::{Delivery, Position, Topic, log::Source};
use bytes::Bytes;
use std::{collections::HashMap, sync::atomic::Ordering};
use switchboard_core::Result;
use switchboard_wire::Code;

/// Newest entries of a destination among which the newest copy is searched, and those of each topic of a pattern from
/// which a bridge continues.
pub(super) const RECOVER_MAX: usize = 1_000;
/// Topics of a pattern whose positions are kept without a search for those that are gone.
pub(super) const TOPICS_MIN: usize = 1_024;

impl Copier {
    /// Returns the topics of the pattern that are there, with their newest entries.
    pub(super) async fn listed(&self) -> Result<HashMap<Topic, Position>> {
        let mut listed = HashMap::new();
        let Source::Pattern(pattern) = &self.source else { return Ok(listed) };
        let mut token = None;
        loop {
            let list = self.from.bus.topics(pattern.clone());
            let page = match token.take() {
                Some(token) => list.page(token).await?,
                None => list.await?,
            };
            listed.extend(page.topics.into_iter().map(|listed| (listed.topic, listed.stats.head)));
            token = page.next;
            if token.is_none() {
                return Ok(listed);
            }
        }
    }

    /// Forgets the positions of topics that are gone, once their number has doubled.
    pub(super) async fn forget_topics(&mut self) -> Result<()> {
        if self.positions.len() < self.topics_max {
            return Ok(());
        }
        let listed = self.listed().await?;
        self.positions.retain(|topic, _| listed.contains_key(topic));
        self.checked.retain(|topic| listed.contains_key(topic));
        if let Some(heads) = &mut self.heads {
            heads.retain(|topic, _| listed.contains_key(topic));
        }
        self.topics_max = TOPICS_MIN.max(2 * self.positions.len());
        Ok(())
    }

    /// Returns the position of the newest copy that the destination keeps of a topic. Without one among many entries,
    /// it may be behind them, which counts as a gap.
    pub(super) async fn recover(&self, topic: &Topic) -> Result<Option<Position>> {
        let (found, entries) = self.search(topic).await?;
        if found.is_none() && entries >= RECOVER_MAX {
            self.counters.gaps.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                target: "switchboard::bus", %topic, from = %self.from.name, to = %self.to.name,
                "the newest {entries} entries have no copy; older ones are not searched, and entries may be missing"
            );
        }
        Ok(found)
    }

    /// Passes over the copies that a failed publication has left at the destination, whose ids may be forgotten.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let Some((topic, epoch)) = self.unclear.clone() else { return Ok(()) };
        let (found, _) = self.search(&topic).await?;
        if let Some(found) = found.filter(|found| found.epoch == epoch) {
            let known = self.positions.get(&topic).filter(|known| known.epoch == epoch);
            if known.is_none_or(|known| known.offset < found.offset) {
                self.positions.insert(topic, found);
            }
        }
        self.unclear = None;
        Ok(())
    }

    /// Returns the position of the newest copy, and the number of entries that were read. A page begins with the
    /// oldest entry and ends with its bytes: the newest copy may be on a later one.
    async fn search(&self, topic: &Topic) -> Result<(Option<Position>, usize)> {
        let position = |delivery: &Delivery<Bytes>| match delivery {
            Delivery::Entry(message) => trail::position(message.headers(), &self.from.name),
            _ => None,
        };
        let entry = |delivery: &Delivery<Bytes>| match delivery {
            Delivery::Entry(message) => Some(message.position()),
            _ => None,
        };
        let (mut found, mut entries, mut last) = (None, 0, None);
        loop {
            let history = self.to.bus.history_with(topic, |_, bytes| Ok(bytes)).limit(RECOVER_MAX);
            let history = match last {
                Some(last) => history.after(last),
                None => history,
            };
            let page = match history.await {
                Ok(page) => page,
                // The topic is not there yet, or the destination keeps nothing.
                Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => {
                    return Ok((found, entries));
                }
                Err(status) => return Err(status),
            };
            found = page.deliveries.iter().rev().find_map(position).or(found);
            entries += page.deliveries.iter().filter_map(entry).count();
            last = page.deliveries.iter().rev().find_map(entry);
            if !page.has_more || last.is_none() {
                return Ok((found, entries));
            }
        }
    }
}
