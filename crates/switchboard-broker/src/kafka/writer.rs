//! The producer of one partition.

use super::{
    batch::{self, NewRecord, Producer},
    cluster::{Cluster, Target},
    errors,
    ids::Ids,
    log::Failed,
    messages,
};
use crate::record;
use bytes::Bytes;
use std::time::Duration;

/// Pause of publications with ids after which the first record of the window is searched again.
const IDS_PAUSE_MS: i64 = 1_000;

/// State of the producer of one partition.
#[derive(Default)]
pub(super) struct Writer {
    topic_id: u128,
    producer: Option<Producer>,
    /// A batch had no response: it may be appended later, until the server knows a new epoch of the producer.
    is_unsettled: bool,
    /// Offset after the newest record that this producer has appended.
    end: i64,
    pub(super) ids: Ids,
    /// Time at which ids were read, in milliseconds since 1970.
    ids_read_ms: i64,
}

impl Writer {
    /// Returns whether the last batch may be appended, now or later.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_unsettled
    }

    /// Returns whether the last batch belongs to the topic of Kafka that is there now.
    pub(super) fn is_of(&self, target: &Target) -> bool {
        self.topic_id == target.layout.topic_id
    }

    /// Returns whether the last batch can be sent again under its number: a server that has it responds with its
    /// offset.
    pub(super) fn has_producer(&self) -> bool {
        self.producer.is_some()
    }

    /// Prepares the producer for the topic of Kafka that is there now.
    pub(super) async fn prepare(&mut self, cluster: &Cluster, target: &Target) -> Result<(), Failed> {
        if self.topic_id != target.layout.topic_id {
            *self = Writer { topic_id: target.layout.topic_id, ..Writer::default() };
        }
        if self.is_unsettled {
            self.producer = match self.producer.take() {
                Some(Producer { id, epoch, .. }) if epoch < i16::MAX => {
                    Some(Producer { id, epoch: epoch + 1, sequence: 0 })
                }
                _ => None,
            };
        }
        if self.producer.is_none() {
            let api = messages::INIT_PRODUCER_ID;
            let body = messages::init_producer_id_request().0;
            let body = target.connection.request(api, &body, super::RESPONSE_TIMEOUT).await?;
            let response = messages::init_producer_id(body);
            let (error, id, epoch) = response.ok_or_else(|| target.connection.unreadable(api))?;
            if error != errors::NONE {
                let text = format!("{}: no producer id was given", cluster.name);
                return Err(Failed::error(api, error, text));
            }
            self.producer = Some(Producer { id, epoch, sequence: 0 });
        }
        Ok(())
    }

    /// Appends records; returns the offset of the first one.
    ///
    /// Cancel safe: the batch of a dropped future counts as one without a response.
    pub(super) async fn produce(
        &mut self,
        cluster: &Cluster,
        target: &Target,
        records: &[NewRecord],
        limit: Duration,
    ) -> Result<i64, Failed> {
        let Some(producer) = self.producer else { return Err(Failed::Status(super::ended(cluster))) };
        let was_unsettled = std::mem::replace(&mut self.is_unsettled, true);
        let batch = batch::encode(records, producer, now_ms());
        let produced = target.produce(&cluster.options.prefix, &batch, limit).await;
        match &produced {
            Ok(base) => {
                self.is_unsettled = false;
                let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
                // Sequences begin again at 0 after the largest number.
                let sequence = ((i64::from(producer.sequence) + i64::from(count)) % (1 << 31)) as i32;
                self.producer = Some(Producer { sequence, ..producer });
                let end = base + i64::from(count);
                if self.ids.through == Some(*base) {
                    self.ids.through = Some(end);
                }
            }
            Err(Failed::Error { error, .. }) if errors::is_of_producer(*error) => {
                // Nothing was appended. The server has forgotten the producer.
                self.is_unsettled = was_unsettled;
                self.producer = None;
            }
            Err(Failed::Error { error, .. }) if !errors::may_be_appended(*error) => {
                self.is_unsettled = was_unsettled;
            }
            Err(_) => {}
        }
        produced
    }

    /// Reads the ids of the records that the partition has: those in the window at first, later those since the last
    /// time.
    pub(super) async fn read_ids(
        &mut self,
        cluster: &Cluster,
        target: &Target,
        limit: Duration,
    ) -> Result<(), Failed> {
        let topic = &cluster.options.prefix;
        if self.is_unsettled {
            // A record without a topic, with the new epoch of the producer.
            let fence = [NewRecord { key: None, value: Bytes::new() }];
            self.produce(cluster, target, &fence, limit).await?;
        }
        let window = i64::try_from(cluster.options.dedup_window.as_millis()).unwrap_or(i64::MAX);
        let oldest = now_ms().saturating_sub(window);
        self.ids.forget_before(oldest);
        let (end, now) = (target.end(topic).await?, now_ms());
        if self.ids.through.is_some_and(|through| through > end) {
            // The partition has lost its end, with the records of some ids.
            self.ids = Ids::default();
        }
        // After a pause, the records before the window need not be read, and may be deleted.
        let is_recent = now.saturating_sub(self.ids_read_ms) < IDS_PAUSE_MS;
        let mut through = match self.ids.through {
            Some(through) if through == end || is_recent => through,
            before => match target.offset(topic, oldest.max(0)).await? {
                -1 => end,
                first => before.map_or(first, |before| before.max(first)),
            },
        };
        self.ids_read_ms = now;
        while through < end {
            let chunk = match target.read(through).await {
                Ok(chunk) => chunk,
                Err(failed) => {
                    if matches!(failed, Failed::Error { error: errors::OFFSET_OUT_OF_RANGE, .. }) {
                        self.ids.through = None;
                    }
                    return Err(failed);
                }
            };
            for record in &chunk.batches.records {
                self.ids.note_record(record, cluster.options.dedup_ids_max);
            }
            match chunk.batches.next {
                Some(next) => through = next,
                None => {
                    // A leader that is behind for a moment.
                    return Err(Failed::error(messages::FETCH, errors::LEADER_NOT_AVAILABLE, String::new()));
                }
            }
            self.ids.through = Some(through);
        }
        self.ids.through = Some(through);
        Ok(())
    }

    /// Returns the epoch of records that were appended. An offset that is not behind those before belongs to a topic
    /// that was created since, or to a partition that has lost its end.
    pub(super) async fn epoch(
        &mut self,
        cluster: &Cluster,
        target: &Target,
        base: i64,
        count: usize,
    ) -> Result<u64, Failed> {
        if count == 0 {
            return Ok(target.epoch);
        }
        let (before, end) = (self.end, base.saturating_add(i64::try_from(count).unwrap_or(i64::MAX)));
        self.end = end;
        if base >= before {
            return Ok(target.epoch);
        }
        cluster.forget(&target.layout);
        // Of the topic that has the records now, if the leaders can be read.
        let Ok(layout) = cluster.layout().await else { return Ok(target.epoch) };
        if layout.topic_id == target.layout.topic_id {
            cluster.note_loss(&layout, target.partition);
            self.ids = Ids::default();
        } else {
            let end = self.end;
            *self = Writer { topic_id: layout.topic_id, end, ..Writer::default() };
        }
        Ok(cluster.epoch(&layout, target.partition))
    }
}

/// Returns the time in milliseconds since 1970.
fn now_ms() -> i64 {
    i64::try_from(record::now().as_millis()).unwrap_or(i64::MAX)
}
