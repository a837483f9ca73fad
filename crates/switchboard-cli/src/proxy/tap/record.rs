//! What is seen of a call until it ends.

use super::{Rules, Tap};
use bytes::Bytes;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use switchboard::{Call, Code, Codec, Metadata, Reply, Result, Status};

/// Larger messages are told by their size alone.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Messages of a stream that are kept, of either direction.
const MESSAGES_MAX: usize = 100;

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
    /// Of a call that has one; those of a stream otherwise.
    pub(super) requests: Messages,
    pub(super) reply_metadata: Metadata,
    pub(super) replies: Messages,
    pub(super) trailers: Metadata,
    pub(super) failure: Option<Status>,
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
    Whole(Bytes),
}

/// A call that is under way. Dropped before its end, its caller has gone.
pub(super) struct Open {
    tap: Tap,
    began: Instant,
    record: Option<Box<Record>>,
    /// Those of streams; each call has its own.
    requests: Option<Arc<Mutex<Messages>>>,
    replies: Option<Arc<Mutex<Messages>>>,
}

impl Open {
    /// Begins to watch.
    ///
    /// # Errors
    /// None: what is seen is left as it is.
    pub(super) fn new(tap: Tap, rules: Arc<Rules>, method: String, call: &mut Call) -> Result<Open> {
        let mut requests = Messages::default();
        let mut streamed = None;
        match call.message() {
            Some(message) => requests.keep(message),
            None => {
                let seen = Arc::new(Mutex::new(Messages { is_stream: true, ..Messages::default() }));
                streamed = Some(seen.clone());
                call.each_message(move |message| {
                    lock(&seen).keep(&message);
                    Ok(message)
                })?;
            }
        }
        let cx = call.cx();
        let record = Record {
            rules,
            began: SystemTime::now(),
            took: Duration::ZERO,
            wire: cx.peer().wire,
            peer: cx.peer().address.clone(),
            method,
            codec: cx.codec(),
            metadata: cx.metadata().clone(),
            requests,
            reply_metadata: Metadata::new(),
            replies: Messages::default(),
            trailers: Metadata::new(),
            failure: None,
        };
        Ok(Open {
            tap,
            began: Instant::now(),
            record: Some(Box::new(record)),
            requests: streamed,
            replies: None,
        })
    }

    /// Goes on with the reply, to its end.
    ///
    /// # Errors
    /// None: what is seen is left as it is.
    pub(super) fn answered(mut self, mut reply: Reply) -> Result<Reply> {
        if let Some(record) = &mut self.record {
            record.reply_metadata = reply.metadata_mut().clone();
            if let Some(message) = reply.message() {
                record.replies.keep(message);
            }
        }
        if reply.message().is_none() {
            let seen = Arc::new(Mutex::new(Messages { is_stream: true, ..Messages::default() }));
            self.replies = Some(seen.clone());
            reply = reply.each_message(move |message| {
                lock(&seen).keep(&message);
                Ok(message)
            })?;
        }
        Ok(reply.when_ended(move |outcome| self.end(outcome)))
    }

    /// The call has ended.
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
            self.close(Err(&Status::canceled("its caller has gone, or its time was over")));
        }
    }
}

impl Record {
    pub(super) fn code(&self) -> Code {
        self.failure.as_ref().map_or(Code::Ok, Status::code)
    }

    /// What it makes the queue hold.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.requests.kept.iter().chain(&self.replies.kept);
        kept.map(|seen| if let Seen::Whole(bytes) = seen { bytes.len() } else { 0 }).sum()
    }
}

impl Messages {
    fn keep(&mut self, message: &Bytes) {
        if self.kept.len() == MESSAGES_MAX {
            self.left_out += 1;
            return;
        }
        // A copy: a share would keep the whole buffer that was read.
        self.kept.push(match message.len() <= MESSAGE_BYTES_MAX {
            true => Seen::Whole(Bytes::copy_from_slice(message)),
            false => Seen::Large(message.len()),
        });
    }
}

/// Taken by the two ends of one call, one after the other.
fn lock(messages: &Mutex<Messages>) -> MutexGuard<'_, Messages> {
    messages.lock().unwrap_or_else(PoisonError::into_inner)
}
