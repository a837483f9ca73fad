//! Publications that wait for their partition.
//!
//! A task per partition appends what waits, as one batch, while more arrives. It is an idempotent producer: the server
//! drops a batch that it has, and refuses one of an earlier epoch of the producer. A batch that may be appended
//! although a server reports an error is sent again under its number. After a batch without a response, the next one
//! has a new epoch, so that the lost one cannot be appended later. Then the partition is read up to it, which shows the
//! publication ids that the lost batch has left there.

use super::{
    RESPONSE_TIMEOUT,
    batch::NewRecord,
    cluster::{Cluster, Target, Tries},
    ids::IdKey,
    log::Failed,
    writer::Writer,
};
use crate::record;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard_core::Result;
use switchboard_message::{Position, Publication, Topic};
use switchboard_wire::{Code, Retry, Status};
use tokio::sync::oneshot;

/// Bytes of the appends that wait for one partition; more are refused.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Bytes of the appends that share a batch: half of what servers accept by default.
const GROUP_BYTES_MAX: usize = 512 << 10;

/// The partitions to which this process publishes.
pub(super) struct Appends {
    cluster: Arc<Cluster>,
    partitions: Mutex<HashMap<i32, Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Append>,
    /// Bytes of those that wait.
    bytes: usize,
    is_running: bool,
    /// Present while no task uses it.
    writer: Option<Box<Writer>>,
}

/// Publications of one call.
pub(super) struct Append {
    pub(super) records: Vec<NewRecord>,
    /// Topic and id of each, if it has one.
    pub(super) ids: Vec<Option<IdKey>>,
    bytes: usize,
    /// Partitions of the topic of Kafka when the partition was selected.
    partitions: usize,
    respond: oneshot::Sender<Result<Position>>,
}

impl Append {
    fn lacks_ids(&self) -> bool {
        self.ids.iter().any(Option::is_none)
    }
}

impl Appends {
    pub(super) fn new(cluster: Arc<Cluster>) -> Arc<Appends> {
        Arc::new(Appends { cluster, partitions: Mutex::default() })
    }

    fn partitions(&self) -> MutexGuard<'_, HashMap<i32, Queue>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends publications, all or none. Cancel safe: those of a dropped future may be appended.
    pub(super) async fn append(
        self: &Arc<Self>,
        topic: &Topic,
        publications: Vec<Publication>,
    ) -> Result<Position> {
        let layout = self.cluster.layout().await?;
        let (respond, response) = oneshot::channel();
        let mut append = self.prepare(topic, &publications, respond);
        append.partitions = layout.partitions();
        self.enqueue(layout.partition(topic), append)?;
        let closed = |_| Status::unavailable(format!("{} is shut down", self.cluster.name));
        response.await.map_err(closed)?
    }

    fn prepare(
        &self,
        topic: &Topic,
        publications: &[Publication],
        respond: oneshot::Sender<Result<Position>>,
    ) -> Append {
        let (key, now) = (Bytes::copy_from_slice(topic.name().as_bytes()), record::now());
        let uses_ids = !self.cluster.options.dedup_window.is_zero();
        let id = |publication: &Publication| {
            // Copies: an id may be a part of a request that is much larger.
            let copy = || Bytes::copy_from_slice(&publication.id);
            (uses_ids && !publication.id.is_empty()).then(|| (key.clone(), copy()))
        };
        let ids = publications.iter().map(id).collect();
        let record =
            |publication| NewRecord { key: Some(key.clone()), value: record::encode(publication, now) };
        let records: Vec<_> = publications.iter().map(record).collect();
        let bytes = records.iter().map(|record| record.value.len() + key.len() + 32).sum();
        Append { records, ids, bytes, partitions: 0, respond }
    }

    fn enqueue(self: &Arc<Self>, partition: i32, append: Append) -> Result<()> {
        let mut partitions = self.partitions();
        let queue = partitions.entry(partition).or_default();
        // A batch that is larger than the limit waits alone.
        let bytes = queue.bytes.saturating_add(append.bytes);
        if bytes > WAITING_BYTES_MAX && !queue.waiting.is_empty() {
            let text = format!(
                "{}: {} bytes wait for partition {partition}; the limit is {WAITING_BYTES_MAX}; publish more slowly",
                self.cluster.name, queue.bytes
            );
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        queue.bytes = bytes;
        queue.waiting.push_back(append);
        if queue.is_running {
            return Ok(());
        }
        queue.is_running = true;
        let writer = queue.writer.take().unwrap_or_default();
        // Without the lock: a runtime that ends drops the task at once, which takes it.
        drop(partitions);
        let running = Running { appends: self.clone(), partition, has_ended: false };
        tokio::spawn(drain(running, writer));
        Ok(())
    }

    /// Takes the appends of the next batch. Without any, keeps the writer and ends its task.
    fn take(&self, partition: i32, writer: &mut Option<Box<Writer>>) -> Vec<Append> {
        let mut partitions = self.partitions();
        let queue = partitions.entry(partition).or_default();
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(append) = queue.waiting.front() {
            bytes += append.bytes;
            if !group.is_empty() && bytes > GROUP_BYTES_MAX {
                break;
            }
            group.extend(queue.waiting.pop_front());
        }
        let taken: usize = group.iter().map(|append: &Append| append.bytes).sum();
        queue.bytes = queue.bytes.saturating_sub(taken);
        if group.is_empty() {
            queue.is_running = false;
            queue.writer = writer.take();
        }
        group
    }

    /// Takes all that wait: while a server does not respond, callers do not time out one after the other.
    fn take_all(&self, partition: i32) -> VecDeque<Append> {
        let mut partitions = self.partitions();
        let Some(queue) = partitions.get_mut(&partition) else { return VecDeque::new() };
        queue.bytes = 0;
        std::mem::take(&mut queue.waiting)
    }

    async fn append_group(
        &self,
        partition: i32,
        writer: &mut Writer,
        group: &[Append],
    ) -> Result<Vec<Position>> {
        let (mut tries, mut repeated) = (Tries::new(), None);
        loop {
            let layout = self.cluster.layout().await?;
            let target = self.cluster.target_of(layout, partition).await?;
            let is_other = |append: &Append| append.partitions != target.layout.partitions();
            if group.iter().any(is_other) {
                let text = format!("{}: the number of partitions has changed", self.cluster.name);
                let status = Status::unavailable(text);
                return Err(if repeated.is_none() { status.with_retry(Retry::Safe) } else { status });
            }
            match self.attempt(&target, writer, group, &tries, &mut repeated).await {
                Ok(positions) => return Ok(positions),
                Err(Failed::Status(status)) => {
                    self.cluster.forget(&target.layout);
                    return Err(status);
                }
                Err(Failed::Error { request, error, text }) => {
                    tries.again(&self.cluster, &target.layout, request, error, &text).await?;
                }
            }
        }
    }

    async fn attempt(
        &self,
        target: &Target,
        writer: &mut Writer,
        group: &[Append],
        tries: &Tries,
        repeated: &mut Option<Plan>,
    ) -> std::result::Result<Vec<Position>, Failed> {
        let plan = match repeated.take() {
            Some(plan) if writer.is_of(target) && writer.has_producer() => plan,
            // Another batch could have entries that are appended already.
            Some(_) if writer.is_of(target) && group.iter().any(Append::lacks_ids) => {
                let text = format!("{}: entries without an id may be appended", self.cluster.name);
                return Err(Failed::Status(Status::unavailable(text)));
            }
            _ => {
                writer.prepare(&self.cluster, target).await?;
                if group.iter().any(|append| append.ids.iter().any(Option::is_some)) {
                    writer.read_ids(&self.cluster, target, tries.limit()).await?;
                }
                Plan::new(writer, group)
            }
        };
        let produced = match plan.records.is_empty() {
            true => Ok(0),
            false => writer.produce(&self.cluster, target, &plan.records, tries.limit()).await,
        };
        let base = match produced {
            Ok(base) => base,
            Err(failed) => {
                *repeated = writer.is_unsettled().then_some(plan);
                return Err(failed);
            }
        };
        let now_ms = i64::try_from(record::now().as_millis()).unwrap_or(i64::MAX);
        for (key, index) in plan.new_ids {
            writer.ids.note(key, base + index as i64, now_ms, self.cluster.options.dedup_ids_max);
        }
        let epoch = writer.epoch(&self.cluster, target, base, plan.records.len()).await?;
        let offset = |last: &Spot| match last {
            Spot::Known(offset) => *offset as u64 + 1,
            Spot::New(index) => base as u64 + *index as u64 + 1,
        };
        Ok(plan.last.iter().map(|last| Position { epoch, offset: offset(last) }).collect())
    }
}

/// Where a publication is.
#[derive(Clone, Copy)]
enum Spot {
    /// At this offset: its id is known.
    Known(i64),
    /// In the batch.
    New(usize),
}

/// Records of a batch without those that the partition has.
struct Plan {
    records: Vec<NewRecord>,
    new_ids: HashMap<IdKey, usize>,
    /// The last publication of each append.
    last: Vec<Spot>,
}

impl Plan {
    fn new(writer: &Writer, group: &[Append]) -> Plan {
        let mut plan = Plan { records: Vec::new(), new_ids: HashMap::new(), last: Vec::new() };
        for append in group {
            let mut last = Spot::New(0);
            for (record, id) in append.records.iter().zip(&append.ids) {
                let known = id.as_ref().and_then(|id| {
                    let in_batch = || plan.new_ids.get(id).copied().map(Spot::New);
                    writer.ids.find(id).map(Spot::Known).or_else(in_batch)
                });
                last = known.unwrap_or_else(|| {
                    let index = plan.records.len();
                    plan.records.push(record.clone());
                    if let Some(id) = id {
                        plan.new_ids.insert(id.clone(), index);
                    }
                    Spot::New(index)
                });
            }
            plan.last.push(last);
        }
        plan
    }
}

/// A task that appends. If its runtime ends before it does, those that wait end as well, and the next append starts
/// another one.
struct Running {
    appends: Arc<Appends>,
    partition: i32,
    has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let waiting = self.appends.take_all(self.partition);
        if let Some(queue) = self.appends.partitions().get_mut(&self.partition) {
            queue.is_running = false;
        }
        drop(waiting);
    }
}

/// Appends until nothing waits.
async fn drain(mut running: Running, writer: Box<Writer>) {
    let (appends, partition) = (running.appends.clone(), running.partition);
    let mut writer = Some(writer);
    loop {
        let group = appends.take(partition, &mut writer);
        let Some(writer) = &mut writer else {
            running.has_ended = true;
            return;
        };
        let appending = appends.append_group(partition, writer, &group);
        // Each request has a limit, and closes its connection then: the limit of all is a little longer.
        let appended =
            tokio::time::timeout(RESPONSE_TIMEOUT + RESPONSE_TIMEOUT / 10, appending).await.unwrap_or_else(
                |_| Err(Status::unavailable(format!("{} does not respond", appends.cluster.name))),
            );
        match appended {
            Ok(positions) => {
                for (append, position) in group.into_iter().zip(positions) {
                    // The caller may have gone.
                    let _ = append.respond.send(Ok(position));
                }
            }
            Err(status) => {
                // Before a response, after which its caller may publish again. An error of a batch is its own.
                let waiting = match status.code() {
                    Code::Unavailable => appends.take_all(partition),
                    _ => VecDeque::new(),
                };
                for append in group {
                    let _ = append.respond.send(Err(status.clone()));
                }
                for append in waiting {
                    let _ = append.respond.send(Err(status.clone().with_retry(Retry::Safe)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{Options, options::Address};
    use switchboard_wire::Codec;

    fn appends() -> Arc<Appends> {
        let address = Address::parse("kafka://127.0.0.1:1").unwrap();
        Appends::new(Arc::new(Cluster::new("kafka".to_owned(), address, Options::new())))
    }

    #[test]
    fn waiting_bytes_are_limited() {
        let (appends, topic) = (appends(), Topic::new("t").unwrap());
        // As with a task that waits for a server.
        appends.partitions().entry(0).or_default().is_running = true;
        let enqueue = || {
            let publication = Publication::new(Codec::Raw, vec![0; 1 << 20]);
            let (respond, _) = oneshot::channel();
            appends.enqueue(0, appends.prepare(&topic, &[publication], respond))
        };
        let refused = (0..100).map(|_| enqueue()).find_map(Result::err).unwrap();
        assert!(refused.message().contains("the limit is 67108864"), "{refused}");
        assert_eq!((refused.code(), refused.retry()), (Code::ResourceExhausted, Retry::Safe));
        // A batch takes a part of them.
        assert_eq!(appends.take(0, &mut None).len(), 1);
        enqueue().unwrap();
        assert_eq!(appends.take_all(0).len(), 63);
        enqueue().unwrap();
    }

    #[test]
    fn another_runtime_continues() {
        let appends = appends();
        let topic = Topic::new("t").unwrap();
        let enqueue = || {
            let (respond, response) = oneshot::channel();
            let append = appends.prepare(&topic, &[Publication::new(Codec::Raw, "x")], respond);
            appends.enqueue(0, append).unwrap();
            response
        };
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = runtime();
        let entered = first.enter();
        let response = enqueue();
        drop(entered);
        drop(first);
        // Its task has ended without a response.
        let limit = std::time::Duration::from_secs(30);
        let ended = runtime().block_on(async { tokio::time::timeout(limit, response).await });
        assert!(ended.expect("the task has ended").is_err());
        let response = runtime().block_on(async { enqueue().await.unwrap().unwrap_err() });
        assert_eq!(response.code(), Code::Unavailable, "{response}");
    }
}
