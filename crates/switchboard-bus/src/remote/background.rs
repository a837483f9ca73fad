//! Publications without a position, and acknowledgements: sent by one task each, in batches.

use super::{is_transient, outage::Outage, pause, publish};
use crate::v1::{self, BusClient};
use std::{
    future::Future,
    sync::{Arc, OnceLock},
};
use switchboard::{Result, Status};
use switchboard_message::remote::Settled;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};

/// Publications in the queue, and those of one batch: the default limit of a server.
const PUBLICATIONS_MAX: usize = 8_192;
const BATCH_MAX: usize = 1_024;
/// Bytes of the queued publications, with those of their names and of the queue itself.
const BYTES_MAX: u32 = 8 << 20;
/// Memory of a publication beside its bytes.
const QUEUED_BYTES: usize = 128;
/// Bytes of a batch after which it is sent.
const BATCH_BYTES: usize = 512 << 10;
/// Acknowledgements in the queue, and those of one call.
const SETTLED_MAX: usize = 65_536;
/// Attempts to send acknowledgements. Entries whose acknowledgements are lost are delivered again.
const ATTEMPTS_MAX: u32 = 5;

/// Queues of a bus. Their tasks begin with the first item, and end with the bus, after they have sent all.
#[derive(Debug)]
pub(super) struct Background {
    client: BusClient,
    publications: OnceLock<mpsc::Sender<Queued>>,
    room: Arc<Semaphore>,
    settled: OnceLock<mpsc::Sender<ToSettle>>,
}

/// An item in the queue of acknowledgements.
enum ToSettle {
    Entry(String, Settled),
    /// Answered when the items before it were sent.
    Flush(oneshot::Sender<()>),
}

/// A publication in the queue.
struct Queued {
    topic: String,
    entry: v1::Publication,
    bytes: usize,
    /// Its share of the bytes of the queue.
    _permit: OwnedSemaphorePermit,
}

impl Background {
    pub(super) fn new(client: BusClient) -> Background {
        let room = Arc::new(Semaphore::new(BYTES_MAX as usize));
        Background { client, publications: OnceLock::new(), room, settled: OnceLock::new() }
    }

    /// Queues a publication.
    ///
    /// # Errors
    /// `ResourceExhausted` when the queue is full, `FailedPrecondition` outside of a runtime.
    pub(super) fn publish(&self, topic: String, entry: v1::Publication) -> Result<()> {
        let sender = self.publications.get();
        let sender = match sender {
            Some(sender) => sender,
            None => {
                let handle = handle()?;
                self.publications.get_or_init(|| {
                    let (sender, queue) = mpsc::channel(PUBLICATIONS_MAX);
                    handle.spawn(publish_all(self.client.clone(), queue));
                    sender
                })
            }
        };
        let headers = entry.headers.iter().map(|header| header.name.len() + header.value.len());
        let bytes = entry.payload.len() + entry.key.len() + entry.id.len() + headers.sum::<usize>();
        let bytes = bytes + topic.len() + QUEUED_BYTES;
        let charged = u32::try_from(bytes).unwrap_or(u32::MAX).min(BYTES_MAX);
        let Ok(permit) = self.room.clone().try_acquire_many_owned(charged) else {
            return Err(full(&topic, &format!("{BYTES_MAX} bytes")));
        };
        sender.try_send(Queued { topic, entry, bytes, _permit: permit }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(queued) => {
                full(&queued.topic, &format!("{PUBLICATIONS_MAX} messages"))
            }
            mpsc::error::TrySendError::Closed(queued) => Status::unavailable(format!(
                "message for topic \"{}\" cannot be queued: the runtime of the connection has ended",
                queued.topic
            )),
        })
    }

    /// Queues an acknowledgement; returns false when the queue is full.
    pub(super) fn settle(&self, ack_id: &str, outcome: Settled) -> bool {
        let sender = match self.settled.get() {
            Some(sender) => sender,
            None => {
                let Ok(handle) = handle() else { return false };
                self.settled.get_or_init(|| {
                    let (sender, queue) = mpsc::channel(SETTLED_MAX);
                    handle.spawn(settle_all(self.client.clone(), queue));
                    sender
                })
            }
        };
        sender.try_send(ToSettle::Entry(ack_id.to_owned(), outcome)).is_ok()
    }

    /// Resolves when the acknowledgements so far were sent, or given up.
    pub(super) fn settled(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let sender = self.settled.get().cloned();
        async move {
            let Some(sender) = sender else { return Ok(()) };
            let (flush, flushed) = oneshot::channel();
            let ended = || {
                Status::unavailable(
                    "acknowledgements cannot be sent: the runtime of the connection has ended",
                )
            };
            sender.send(ToSettle::Flush(flush)).await.map_err(|_| ended())?;
            drop(sender);
            flushed.await.map_err(|_| ended())
        }
    }
}

fn handle() -> Result<Handle> {
    Handle::try_current().map_err(|_| {
        Status::failed_precondition(
            "topics of another process are used outside of a runtime; call from a task of tokio",
        )
    })
}

fn full(topic: &str, limit: &str) -> Status {
    Status::resource_exhausted(format!(
        "message for topic \"{topic}\" cannot be queued: the queue of the connection holds {limit}; await publications, \
         or publish less"
    ))
}

/// Publishes queued messages: those that follow each other for one topic in one batch.
async fn publish_all(client: BusClient, mut queue: mpsc::Receiver<Queued>) {
    let (mut next, mut outage) = (None, Outage::of("messages"));
    loop {
        let first = match next.take() {
            Some(queued) => queued,
            None => match queue.recv().await {
                Some(queued) => queued,
                None => return,
            },
        };
        let Queued { topic, entry, mut bytes, _permit } = first;
        let has_id = !entry.id.is_empty();
        let (mut entries, mut permits) = (vec![entry], vec![_permit]);
        while entries.len() < BATCH_MAX && bytes < BATCH_BYTES {
            match queue.try_recv() {
                // A batch is repeated as a whole: only if all of it has ids, or nothing.
                Ok(queued) if queued.topic == topic && has_id != queued.entry.id.is_empty() => {
                    bytes += queued.bytes;
                    entries.push(queued.entry);
                    permits.push(queued._permit);
                }
                Ok(queued) => {
                    next = Some(queued);
                    break;
                }
                Err(_) => break,
            }
        }
        let count = entries.len() as u64;
        match publish::publish(&client, topic.clone(), entries).await {
            Ok(_) => outage.ended(),
            Err(status) => outage.lost(count, &status),
        }
    }
}

/// Sends queued acknowledgements.
async fn settle_all(client: BusClient, mut queue: mpsc::Receiver<ToSettle>) {
    let (mut settled, mut outage) = (Vec::new(), Outage::of("acknowledgements"));
    while queue.recv_many(&mut settled, BATCH_MAX).await > 0 {
        let (mut acked, mut rejected, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
        for item in settled.drain(..) {
            match item {
                ToSettle::Entry(ack_id, Settled::Acknowledged) => acked.push(ack_id),
                ToSettle::Entry(ack_id, Settled::Rejected) => rejected.push(ack_id),
                ToSettle::Flush(flush) => flushes.push(flush),
            }
        }
        if !acked.is_empty() {
            let count = acked.len() as u64;
            let request = v1::AckRequest { ack_ids: acked, ..Default::default() };
            repeat(count, &mut outage, || async { client.ack(request.clone()).await.map(drop) }).await;
        }
        if !rejected.is_empty() {
            let count = rejected.len() as u64;
            let request = v1::RejectRequest { ack_ids: rejected, ..Default::default() };
            repeat(count, &mut outage, || async { client.reject(request.clone()).await.map(drop) }).await;
        }
        for flush in flushes {
            // The caller may no longer wait.
            let _ = flush.send(());
        }
    }
}

/// Calls until it succeeds, at most as often as allowed: a second acknowledgement has no effect.
async fn repeat<F: Future<Output = Result<()>>>(count: u64, outage: &mut Outage, call: impl Fn() -> F) {
    for failures in 1..=ATTEMPTS_MAX {
        match call().await {
            Ok(()) => return outage.ended(),
            Err(status) if is_transient(&status) && failures < ATTEMPTS_MAX => {
                tokio::time::sleep(pause(failures, Some(&status))).await;
            }
            Err(status) => return outage.lost(count, &status),
        }
    }
}
