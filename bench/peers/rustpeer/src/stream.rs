//! Many messages on one stream: as soon as one comes back, the next is sent.

use crate::{
    arguments::Load,
    callers::{Connection, Limit, payload},
    tally::{Latencies, Tally},
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Messages to be sent; at most as many as there are callers wait in it.
pub type Messages = UnboundedReceiverStream<Bytes>;

/// Takes what came back.
pub struct Replies {
    payload: Bytes,
    /// When the messages outstanding were sent: the oldest is answered first.
    sent: VecDeque<Instant>,
    /// Gone when nothing more is to be sent, which ends the stream.
    next: Option<mpsc::UnboundedSender<Bytes>>,
    limit: Limit,
    tally: Tally,
}

impl Replies {
    /// Verifies the oldest message's reply, and sends another.
    ///
    /// # Errors
    /// When a reply answers nothing.
    pub fn answered(&mut self, reply: &[u8]) -> Result<(), String> {
        let from = self.sent.pop_front().ok_or("a reply answers no message")?;
        let verified =
            if reply == self.payload { Ok(()) } else { Err("a reply is not what was sent".to_owned()) };
        let now = self.tally.record(from, verified);
        self.send(now);
        Ok(())
    }

    fn send(&mut self, now: Instant) {
        if self.next.is_some() && !self.limit.allows(now) {
            self.next = None;
        }
        if let Some(next) = &self.next
            && next.send(self.payload.clone()).is_ok()
        {
            self.sent.push_back(now);
        }
    }
}

/// Keeps `load.callers` messages outstanding on a stream of `connection`.
pub(crate) async fn call<C: Connection>(
    mut connection: C,
    load: &Load,
    begin: Instant,
    latencies: &Arc<Mutex<Latencies>>,
) -> Result<(), String> {
    let (next, messages) = mpsc::unbounded_channel();
    let mut replies = Replies {
        payload: payload(load.bytes),
        sent: VecDeque::with_capacity(load.callers),
        next: Some(next),
        limit: Limit::of_all(load, begin),
        tally: Tally::new(latencies),
    };
    for _ in 0..load.callers {
        replies.send(Instant::now());
    }
    let called = async move {
        let ended = connection.stream(messages.into(), &mut replies).await;
        let unanswered = replies.sent.len();
        match ended {
            Ok(()) if unanswered > 0 => {
                Err(format!("the stream ended with {unanswered} messages unanswered"))
            }
            other => other,
        }
    };
    // A task of its own: on a shared runtime the thread that blocks is woken across threads.
    tokio::spawn(called).await.map_err(|error| error.to_string())?
}
