//! One bidirectional stream with many messages outstanding, each answered with itself.

use super::client::ClientArgs;
use crate::{
    bench::{callers::Tally, measure::Measured, switchboard},
    services::proto::bench::EchoMessage,
};
use ::switchboard::Sender;
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// What to send.
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
    /// When it is not time that ends the measurement.
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
        let flight = Arc::new(Flight { room: Semaphore::new(self.outstanding), sent: Mutex::default() });
        // A task of its own: it may wait for the server while the server waits for replies to be taken.
        let sending = tokio::spawn(send(sender, flight.clone(), self.payload.clone(), end));
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
            let from = flight.landed().ok_or("the server answered what was never sent")?;
            let outcome = switchboard::verify(reply.payload.as_deref(), &self.payload);
            tally.note(from, now, outcome);
        }
        sending.abort();
        Ok(tally.finish())
    }
}

/// Messages under way, answered in the order in which they were sent.
struct Flight {
    room: Semaphore,
    sent: Mutex<VecDeque<Instant>>,
}

impl Flight {
    /// A reply has come; when its message was sent.
    fn landed(&self) -> Option<Instant> {
        self.room.add_permits(1);
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Sends while there is room, until `end`; the stream then ends when all is answered.
async fn send(sender: Sender<EchoMessage>, flight: Arc<Flight>, payload: Bytes, end: Instant) {
    loop {
        let Ok(permit) = flight.room.acquire().await else { return };
        permit.forget();
        let now = Instant::now();
        if now >= end {
            return;
        }
        flight.sent.lock().unwrap_or_else(PoisonError::into_inner).push_back(now);
        let message = EchoMessage { payload: Some(payload.clone()), ..Default::default() };
        if sender.send(message).await.is_err() {
            // The receiving side tells why.
            return;
        }
    }
}
