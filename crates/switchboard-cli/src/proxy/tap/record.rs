//! The record of a call.

use super::{HELD_BYTES_MAX, Rules, Tap};
use bytes::Bytes;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use switchboard::{Call, Code, Codec, Metadata, Reply, Result, Status};

/// Only the size of larger messages is recorded, and of all messages while the tap holds [`HELD_BYTES_MAX`].
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Messages of a stream that are kept, of each direction.
const MESSAGES_MAX: usize = 100;

/// Approximate bytes of a running call besides its metadata and messages.
const RECORD_BYTES: usize = 1024;

/// A call that has ended.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) rules: Arc<Rules>,
    pub(super) began: SystemTime,
    pub(super) took: Duration,
    pub(super) wire: &'static str,
    pub(super) peer: String,
    pub(super) method: String,
    pub(super) codec: Codec,
    pub(super) metadata: Metadata,
    /// Messages of a unary request; otherwise those of the stream.
    pub(super) requests: Messages,
    pub(super) reply_metadata: Metadata,
    pub(super) replies: Messages,
    pub(super) trailers: Metadata,
    pub(super) failure: Option<Status>,
    /// Memory besides the messages.
    #[expect(dead_code, reason = "its drop is what counts")]
    pub(super) charge: Charge,
}

/// The messages of one direction.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pub(super) is_stream: bool,
    pub(super) kept: Vec<Seen>,
    pub(super) left_out: u64,
}

/// A message, or its size.
#[derive(Debug)]
pub(super) enum Seen {
    Large(usize),
    Whole(Bytes, #[expect(dead_code, reason = "its drop is what counts")] Charge),
}

/// Bytes that the tap holds, of running calls and waiting records; dropping the charge releases them.
#[derive(Debug)]
pub(super) struct Charge {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    /// Returns `None` if the tap would exceed its limit.
    pub(super) fn new(held: &Arc<AtomicUsize>, bytes: usize) -> Option<Charge> {
        let charge = Charge { held: held.clone(), bytes };
        (held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= HELD_BYTES_MAX).then_some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A running call. If it is dropped before its end, the caller has disconnected.
pub(super) struct Open {
    tap: Tap,
    began: Instant,
    record: Option<Box<Record>>,
    /// Messages of streams; each call has its own.
    requests: Option<Arc<Mutex<Messages>>>,
    replies: Option<Arc<Mutex<Messages>>>,
}

impl Open {
    /// Starts recording; `None` if the tap holds too much already.
    ///
    /// # Errors
    /// None: messages are not changed.
    pub(super) fn new(tap: Tap, rules: Arc<Rules>, method: String, call: &mut Call) -> Result<Option<Open>> {
        let held = tap.held().clone();
        let of_metadata =
            call.cx().metadata().iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let Some(charge) = Charge::new(&held, RECORD_BYTES + method.len() + of_metadata) else {
            return Ok(None);
        };
        let mut requests = Messages::default();
        let mut streamed = None;
        match call.message() {
            Some(message) => requests.keep(message, &held),
            None => {
                let seen = Arc::new(Mutex::new(Messages { is_stream: true, ..Messages::default() }));
                streamed = Some(seen.clone());
                call.each_message(move |message| {
                    lock(&seen).keep(&message, &held);
                    Ok(message)
                })?;
            }
        }
        let cx = call.cx();
        let record = Record {
            rules,
            began: SystemTime::now(),
            took: Duration::ZERO,
            wire: cx.peer().wire(),
            peer: cx.peer().address.clone(),
            method,
            codec: cx.codec(),
            metadata: cx.metadata().clone(),
            requests,
            reply_metadata: Metadata::new(),
            replies: Messages::default(),
            trailers: Metadata::new(),
            failure: None,
            charge,
        };
        Ok(Some(Open {
            tap,
            began: Instant::now(),
            record: Some(Box::new(record)),
            requests: streamed,
            replies: None,
        }))
    }

    /// Continues with the reply, to its end.
    ///
    /// # Errors
    /// None: messages are not changed.
    pub(super) fn answered(mut self, mut reply: Reply) -> Result<Reply> {
        if let Some(record) = &mut self.record {
            record.reply_metadata = reply.metadata_mut().clone();
            if let Some(message) = reply.message() {
                record.replies.keep(message, self.tap.held());
            }
        }
        if reply.message().is_none() {
            let seen = Arc::new(Mutex::new(Messages { is_stream: true, ..Messages::default() }));
            self.replies = Some(seen.clone());
            let held = self.tap.held().clone();
            reply = reply.each_message(move |message| {
                lock(&seen).keep(&message, &held);
                Ok(message)
            })?;
        }
        Ok(reply.when_ended(move |outcome| self.end(outcome)))
    }

    /// Records the end of the call.
    pub(super) fn end(mut self, outcome: Result<&Metadata, &Status>) {
        self.close(outcome);
    }

    fn close(&mut self, outcome: Result<&Metadata, &Status>) {
        let Some(mut record) = self.record.take() else { return };
        record.took = self.began.elapsed();
        for (seen, into) in [(&self.requests, &mut record.requests), (&self.replies, &mut record.replies)] {
            if let Some(seen) = seen {
                *into = std::mem::take(&mut *lock(seen));
            }
        }
        match outcome {
            Ok(trailers) => record.trailers = trailers.clone(),
            Err(status) => {
                record.trailers = status.metadata().clone();
                record.failure = Some(status.clone());
            }
        }
        self.tap.hand_over(*record);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.record.is_some() {
            self.close(Err(&Status::canceled("the caller disconnected, or the deadline has passed")));
        }
    }
}

impl Record {
    pub(super) fn code(&self) -> Code {
        self.failure.as_ref().map_or(Code::Ok, Status::code)
    }
}

impl Messages {
    fn keep(&mut self, message: &Bytes, held: &Arc<AtomicUsize>) {
        if self.kept.len() == MESSAGES_MAX {
            self.left_out += 1;
            return;
        }
        let len = message.len();
        let charge = if len <= MESSAGE_BYTES_MAX { Charge::new(held, len) } else { None };
        // A copy: a share would keep the whole read buffer.
        self.kept.push(match charge {
            Some(charge) => Seen::Whole(Bytes::copy_from_slice(message), charge),
            None => Seen::Large(len),
        });
    }
}

/// The two ends of a call lock it one after the other.
fn lock(messages: &Mutex<Messages>) -> MutexGuard<'_, Messages> {
    messages.lock().unwrap_or_else(PoisonError::into_inner)
}
