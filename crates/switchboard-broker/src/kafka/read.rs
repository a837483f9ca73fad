//! Entries that a partition keeps: those of one topic are among those of others.

use super::{
    batch::Record,
    cluster::{Cluster, Target, Tries},
    log::{Chunk, Failed},
};
use crate::record;
use bytes::Bytes;
use std::{collections::VecDeque, ops::Range, time::Duration};
use switchboard_core::Result;
use switchboard_message::{
    Gap, GapReason, Position, Topic,
    broker::{Page, ReadFrom, StoredEntry},
};
use switchboard_wire::Status;

/// Bytes of the messages of one page, beside its last one.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Records of other topics that one page skips; the reader goes on behind them.
const PAGE_SCAN_MAX: u64 = 50_000;
/// Records of the first part that a search from the end reads.
const FIRST_PART: i64 = 1_024;

/// Reads a page.
pub(super) async fn page(
    cluster: &Cluster,
    topic: &Topic,
    from: ReadFrom,
    entries_max: usize,
) -> Result<Page> {
    let mut tries = Tries::new();
    loop {
        let target = cluster.target(topic).await?;
        let reader = Reader { cluster, target: &target, topic, entries_max: entries_max.max(1) };
        match reader.page(from).await {
            Ok(page) => return Ok(page),
            Err(Failed::Status(status)) => {
                cluster.forget(&target.layout);
                return Err(status);
            }
            Err(Failed::Error { request, error, text }) => {
                tries.again(cluster, &target.layout, request, error, &text).await?;
            }
        }
    }
}

struct Reader<'a> {
    cluster: &'a Cluster,
    target: &'a Target,
    topic: &'a Topic,
    entries_max: usize,
}

/// A page that is being read; offsets are those of Kafka.
struct Scan {
    entries: Vec<StoredEntry>,
    /// Offset of the record that is read next.
    next: i64,
    /// Offset after the newest record.
    end: i64,
}

impl Reader<'_> {
    async fn page(&self, from: ReadFrom) -> Result<Page, Failed> {
        let epoch = self.target.epoch;
        match from {
            ReadFrom::After(position) if position.epoch != epoch => {
                let start = self.target.start(self.name()).await?;
                let scan = self.scan(start, PAGE_SCAN_MAX).await?;
                let end = scan.entries.first().map_or(scan.next as u64, |first| first.position.offset - 1);
                Ok(self.finish(scan, Some((1..end + 1, GapReason::Epoch))))
            }
            ReadFrom::After(position) => self.after(position.offset).await,
            ReadFrom::Last(entries) => self.last(entries).await,
            ReadFrom::Since(age) => self.since(age).await,
            _ => Err(Status::unimplemented(format!("{} does not have this start", self.cluster.name)).into()),
        }
    }

    fn name(&self) -> &str {
        &self.cluster.options.prefix
    }

    async fn after(&self, offset: u64) -> Result<Page, Failed> {
        let (start, end) = (self.target.start(self.name()).await?, self.target.end(self.name()).await?);
        let from = i64::try_from(offset).unwrap_or(i64::MAX);
        if from > end {
            // The caller has seen entries that the partition has lost, or a leader is behind for a moment.
            let lost = end as u64 + 1..offset.saturating_add(1);
            let scan = Scan { entries: Vec::new(), next: end, end };
            return Ok(self.finish(scan, Some((lost, GapReason::Lost))));
        }
        let scan = self.scan(from.max(start), PAGE_SCAN_MAX).await?;
        let first = scan.entries.first().map_or(start as u64 + 1, |first| first.position.offset);
        // Trimmed records may have been those of the topic.
        let missing = (start > from).then(|| (offset + 1..first, GapReason::Expired));
        Ok(self.finish(scan, missing))
    }

    async fn since(&self, age: Duration) -> Result<Page, Failed> {
        let since = record::now().saturating_sub(age).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        let start = self.target.start(self.name()).await?;
        let found = self.target.offset(self.name(), since).await?;
        let from = if found < 0 { self.target.end(self.name()).await? } else { found };
        let scan = self.scan(from.max(start), PAGE_SCAN_MAX).await?;
        // All kept records are newer: those before them may be as well.
        let is_trimmed = found == start && start > 0;
        let first = scan.entries.first().map_or(start as u64 + 1, |first| first.position.offset);
        Ok(self.finish(scan, is_trimmed.then_some((1..first, GapReason::Expired))))
    }

    /// Searches the newest entries from the end, in parts of double size.
    async fn last(&self, last: usize) -> Result<Page, Failed> {
        let (start, end) = (self.target.start(self.name()).await?, self.target.end(self.name()).await?);
        let limit = i64::try_from(self.cluster.options.scan_records_max).unwrap_or(i64::MAX);
        let oldest = start.max(end.saturating_sub(limit));
        let (mut found, mut part_end, mut part) = (VecDeque::new(), end, FIRST_PART);
        while found.len() < last && part_end > oldest {
            let part_start = (part_end - part).max(oldest);
            let mut offsets: Vec<i64> = Vec::new();
            let mut next = part_start;
            while next < part_end {
                let Chunk { batches, .. } = self.target.read(next).await?;
                let Some(after) = batches.next else { break };
                let is_ours = |record: &&Record| record.offset < part_end && self.is_ours(record);
                offsets.extend(batches.records.iter().filter(is_ours).map(|record| record.offset));
                next = after;
            }
            for offset in offsets.into_iter().rev() {
                if found.len() < last {
                    found.push_front(offset);
                }
            }
            (part_end, part) = (part_start, part.saturating_mul(2));
        }
        let from = found.front().copied().unwrap_or(end);
        Ok(self.finish(self.scan(from, u64::MAX).await?, None))
    }

    fn is_ours(&self, record: &Record) -> bool {
        record.key.as_deref() == Some(self.topic.name().as_bytes())
    }

    /// Reads entries of the topic from an offset on, until the page is full, the partition ends, or this number of
    /// other records was skipped.
    async fn scan(&self, from: i64, skipped_max: u64) -> Result<Scan, Failed> {
        let mut scan = Scan { entries: Vec::new(), next: from, end: from };
        let (mut bytes, mut skipped) = (0, 0);
        let mut previous = from as u64;
        loop {
            let Chunk { batches, end } = self.target.read(scan.next).await?;
            scan.end = end;
            let Some(after) = batches.next else { return Ok(scan) };
            for record in batches.records {
                if !self.is_ours(&record) {
                    skipped += 1;
                    continue;
                }
                if scan.entries.len() >= self.entries_max || bytes >= PAGE_BYTES_MAX {
                    scan.next = record.offset;
                    return Ok(scan);
                }
                bytes += record.value.len();
                let offset = record.offset as u64 + 1;
                let position = Position { epoch: self.target.epoch, offset };
                scan.entries.push(StoredEntry::new(position, previous, publication(&record.value)));
                previous = offset;
            }
            scan.next = after;
            if scan.next >= end || skipped >= skipped_max {
                return Ok(scan);
            }
        }
    }

    fn finish(&self, scan: Scan, missing: Option<(Range<u64>, GapReason)>) -> Page {
        let epoch = self.target.epoch;
        let head = Position { epoch, offset: scan.end.max(scan.next) as u64 };
        let gap = |(range, reason)| Gap::new(self.topic.clone(), epoch, range, None, reason);
        Page::new(head, missing.map(gap), scan.entries).complete_through(scan.next as u64)
    }
}

/// Decodes a record. Its bytes are copied: they are a part of a response that is much larger.
pub(super) fn publication(value: &Bytes) -> Option<switchboard_message::Publication> {
    record::decode(Bytes::copy_from_slice(value), record::now())
}
