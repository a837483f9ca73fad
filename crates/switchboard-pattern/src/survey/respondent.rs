//! Respondents of surveys.

use super::too_large;
use crate::Result;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchboard_socket::{Dealer, Endpoint, SocketOptions};

/// Answers the questions of a surveyor; see [`Surveyor`](super::Surveyor) for an example.
#[derive(Clone, Debug)]
pub struct Respondent {
    socket: Dealer,
    answer_bytes_max: usize,
    invalid: Arc<AtomicU64>,
}

impl Respondent {
    /// Creates a respondent with default options, and connects it to a surveyor.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect(endpoint: &str) -> Result<Respondent> {
        let respondent = Respondent::with_options(SocketOptions::default())?;
        respondent.socket.connect_to(endpoint).await?;
        Ok(respondent)
    }

    /// Creates a respondent without an endpoint. It has one surveyor: answers go to its only peer.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`].
    pub fn with_options(mut options: SocketOptions) -> Result<Respondent> {
        options.limits.peers_max = 1;
        let socket = Dealer::with_options(options)?;
        Ok(Respondent { socket, answer_bytes_max: 1 << 20, invalid: Arc::default() })
    }

    /// Sets the bytes of an answer; default 1 MiB.
    #[must_use]
    pub fn answer_bytes_max(mut self, bytes: usize) -> Respondent {
        self.answer_bytes_max = bytes;
        self
    }

    /// Connects to the surveyor.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        Ok(self.socket.connect_to(endpoint).await?)
    }

    /// Binds an endpoint, to which the surveyor connects.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        Ok(self.socket.bind_to(endpoint).await?)
    }

    /// Receives the next question. Messages that are no question are skipped and counted. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::recv`].
    pub async fn recv(&self) -> Result<Question> {
        loop {
            let message = self.socket.recv().await?;
            if let [number, body] = message.frames()
                && number.len() == 8
            {
                return Ok(Question { respondent: self.clone(), number: number.clone(), body: body.clone() });
            }
            self.invalid.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of messages that were no question.
    pub fn invalid(&self) -> u64 {
        self.invalid.load(Ordering::Relaxed)
    }
}

/// A question. Dropping it answers nothing.
#[derive(Debug)]
pub struct Question {
    respondent: Respondent,
    number: Bytes,
    body: Bytes,
}

impl Question {
    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Answers the question. An answer after the time limit of the survey is dropped by the surveyor.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Limit`](crate::ErrorKind::Limit) above
    /// [`answer_bytes_max`](Respondent::answer_bytes_max), and the errors of [`switchboard_socket::Socket::send`].
    pub async fn answer(self, answer: impl Into<Bytes>) -> Result<()> {
        let (answer, max) = (answer.into(), self.respondent.answer_bytes_max);
        if answer.len() > max {
            return Err(too_large(answer.len(), max));
        }
        Ok(self.respondent.socket.send([self.number, answer]).await?)
    }
}
