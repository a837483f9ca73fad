//! One bidirectional stream with many outstanding messages, each of which is echoed.

use super::client::ClientArgs;
use ::switchboard::Sender;
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_cli::{
    bench::{callers::Tally, measure::Measured, switchboard},
    services::proto::bench::EchoMessage,
};
use tokio::sync::mpsc;

/// The messages to send.
#[derive(Debug)]
pub(super) struct Stream {
    url: String,
    payload: Bytes,
    outstanding: usize,
    warm_up: Duration,
    time: Duration,
}

impl Stream {
    /// # Errors
    /// When a number of requests ends the measurement instead of a time.
    pub(super) fn of(args: &ClientArgs) -> Result<Self, String> {
        Ok(Self {
            url: args.url(),
            payload: args.payload(),
            outstanding: args.callers as usize,
            warm_up: args.warm_up(),
            time: args.time()?,
        })
    }

    /// Runs it on one connection.
    ///
    /// # Errors
    /// When the server cannot be reached. A stream that ends early is counted as an error.
    pub(super) async fn run(self) -> Result<Measured, String> {
        let client = switchboard::open(&self.url, 1).await?;
        let (sender, mut replies) = client.stream().await.map_err(|status| status.to_string())?;
        let begin = Instant::now() + self.warm_up;
        let end = begin + self.time;
        let tally = Tally::new(begin, Some(end), u64::MAX, Arc::default(), None);
        let (next, messages) = mpsc::unbounded_channel();
        let mut flight =
            Flight { payload: self.payload.clone(), sent: VecDeque::new(), next: Some(next), end };
        (0..self.outstanding).for_each(|_| flight.send(Instant::now()));
        // A separate task: it may wait for the server while the server waits until replies are read.
        let sending = tokio::spawn(send(sender, messages));
        loop {
            let reply = match replies.next().await {
                Ok(Some(reply)) => reply,
                Ok(None) => break,
                Err(status) => {
                    tally.fail(status.to_string());
                    break;
                }
            };
            let now = Instant::now();
            let from = flight.sent.pop_front().ok_or("the server sent a reply to no message")?;
            let outcome = switchboard::verify(reply.payload.as_deref(), &self.payload);
            tally.note(from, now, outcome);
            flight.send(now);
        }
        sending.abort();
        Ok(tally.finish())
    }
}

/// Messages in flight, echoed in the order in which they were sent; as for the rivals, each reply triggers the next
/// message.
struct Flight {
    payload: Bytes,
    sent: VecDeque<Instant>,
    /// Dropped when no more messages are to be sent, which ends the stream after the last reply.
    next: Option<mpsc::UnboundedSender<Bytes>>,
    end: Instant,
}

impl Flight {
    fn send(&mut self, now: Instant) {
        if now >= self.end {
            self.next = None;
        }
        if let Some(next) = &self.next
            && next.send(self.payload.clone()).is_ok()
        {
            self.sent.push_back(now);
        }
    }
}

async fn send(sender: Sender<EchoMessage>, mut messages: mpsc::UnboundedReceiver<Bytes>) {
    while let Some(payload) = messages.recv().await {
        let message = EchoMessage { payload: Some(payload), ..Default::default() };
        if sender.send(message).await.is_err() {
            // The receiving side reports the error.
            return;
        }
    }
}
