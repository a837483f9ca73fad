//! Survey: a surveyor sends a question to all respondents, and collects their answers until a time limit.
//!
//! The pattern of nanomsg, over one endpoint: a ROUTER at the surveyor, a DEALER at each respondent. Either side binds.
//! A question has two frames, the number of the survey (8 bytes in network order) and the body; so has an answer.
//! Answers to an earlier survey, second answers of a respondent, and other messages are dropped and counted.
//!
//! [`Bus::survey`](switchboard_message::Bus::survey) does the same over a topic, for subscribers in this process and in
//! others, and for callers of a server.

mod respondent;

pub use respondent::{Question, Respondent};

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::{Endpoint, Message, Router, SocketOptions};

/// Sends questions to all connected respondents.
///
/// ```
/// use std::time::Duration;
/// use switchboard_pattern::survey::{Respondent, Surveyor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut surveyor = Surveyor::bind("tcp://127.0.0.1:0").await?;
/// let respondent = Respondent::connect(&surveyor.endpoints()[0].to_string()).await?;
/// tokio::spawn(async move {
///     let question = respondent.recv().await?;
///     question.answer("0.5").await
/// });
/// # while surveyor.respondents() == 0 { tokio::task::yield_now().await; }
/// let mut answers = surveyor.survey("load?", Duration::from_secs(1))?;
/// while let Some(answer) = answers.next().await? {
///     assert_eq!(answer, &b"0.5"[..]);
/// }
/// # Ok(())
/// # }
/// ```
///
/// The same over a topic:
///
/// ```
/// use std::time::Duration;
/// use switchboard_message::{Bus, Delivery};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let bus = Bus::new();
/// let mut questions = bus.subscribe::<String>("load").await?;
/// tokio::spawn(async move {
///     let Ok(Some(Delivery::Entry(question))) = questions.next().await else { return Ok(()) };
///     question.reply(&0.5).await
/// });
/// let loads = bus.survey::<_, f64>("load", &"load?".to_owned()).time_limit(Duration::from_secs(1)).await?;
/// assert_eq!(*loads[0], 0.5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Surveyor {
    socket: Router,
    number: u64,
    answers_max: usize,
    surveys: u64,
    answers: u64,
    ignored: AtomicU64,
}

/// Counters of a [`Surveyor`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Respondents that are connected.
    pub respondents: usize,
    /// Surveys that were sent.
    pub surveys: u64,
    /// Answers in time.
    pub answers: u64,
    /// Messages that were no answer to the present survey.
    pub ignored: u64,
    /// Questions that were dropped because the queue of a respondent was full.
    pub dropped: u64,
}

impl Surveyor {
    /// Creates a surveyor with default options and binds it.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind(endpoint: &str) -> Result<Surveyor> {
        let surveyor = Surveyor::with_options(SocketOptions::default())?;
        surveyor.bind_to(endpoint).await?;
        Ok(surveyor)
    }

    /// Creates a surveyor without endpoints.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`].
    pub fn with_options(options: SocketOptions) -> Result<Surveyor> {
        let socket = Router::with_options(options)?;
        let number = clock::random();
        Ok(Surveyor { socket, number, answers_max: 1024, surveys: 0, answers: 0, ignored: AtomicU64::new(0) })
    }

    /// Sets the number of answers after which a survey ends; default 1,024, at least 1.
    #[must_use]
    pub fn answers_max(mut self, answers: usize) -> Surveyor {
        self.answers_max = answers.max(1);
        self
    }

    /// Binds another endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        Ok(self.socket.bind_to(endpoint).await?)
    }

    /// Connects to another respondent that is bound.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        Ok(self.socket.connect_to(endpoint).await?)
    }

    /// Returns the endpoints that the surveyor is bound to.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.socket.endpoints()
    }

    /// Returns the number of connected respondents.
    pub fn respondents(&self) -> usize {
        self.socket.stats().peers.iter().filter(|peer| peer.is_connected).count()
    }

    /// Sends a question to the respondents that are connected now, and returns their answers to come. A respondent
    /// whose queue is full does not receive it, which is counted. The survey ends when the result is dropped.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Closed`] if the socket is closed. A survey without respondents has no answers.
    pub fn survey(&mut self, question: impl Into<Bytes>, time_limit: Duration) -> Result<Survey<'_>> {
        let deadline = clock::after(clock::now(), time_limit);
        self.number = self.number.wrapping_add(1);
        self.surveys += 1;
        let number = Bytes::copy_from_slice(&self.number.to_be_bytes());
        let question = question.into();
        let mut open = HashSet::new();
        for peer in self.socket.stats().peers.into_iter().filter(|peer| peer.is_connected) {
            self.socket.try_send([peer.routing_id.clone(), number.clone(), question.clone()])?;
            open.insert(peer.routing_id);
        }
        let left = self.answers_max;
        Ok(Survey { surveyor: self, open, left, deadline })
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        Stats {
            respondents: self.respondents(),
            surveys: self.surveys,
            answers: self.answers,
            ignored: self.ignored.load(Ordering::Relaxed),
            dropped: self.socket.stats().dropped,
        }
    }
}

/// Answers to a question.
#[derive(Debug)]
#[must_use = "answers are not received before `next` is called"]
pub struct Survey<'a> {
    surveyor: &'a mut Surveyor,
    /// Respondents that have not answered.
    open: HashSet<Bytes>,
    left: usize,
    deadline: Instant,
}

impl Survey<'_> {
    /// Returns the next answer; `None` once all respondents have answered, at the time limit, and after
    /// [`answers_max`](Surveyor::answers_max) answers. Cancel safe.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Closed`] if the socket is closed.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.open.is_empty() && self.left > 0 {
            let received = tokio::time::timeout_at(self.deadline.into(), self.surveyor.socket.recv()).await;
            let Ok(message) = received else {
                self.open.clear();
                break;
            };
            if let Some(answer) = self.accept(&message?) {
                self.left -= 1;
                self.surveyor.answers += 1;
                return Ok(Some(answer));
            }
            self.surveyor.ignored.fetch_add(1, Ordering::Relaxed);
        }
        Ok(None)
    }

    /// Collects the answers until the survey ends.
    ///
    /// # Errors
    /// Returns the errors of [`next`](Self::next).
    pub async fn all(mut self) -> Result<Vec<Bytes>> {
        let mut answers = Vec::new();
        while let Some(answer) = self.next().await? {
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Returns the number of respondents that have not answered; 0 after the time limit.
    pub fn unanswered(&self) -> usize {
        self.open.len()
    }

    fn accept(&mut self, message: &Message) -> Option<Bytes> {
        let [peer, number, answer] = message.frames() else { return None };
        let is_present = number[..] == self.surveyor.number.to_be_bytes();
        (is_present && self.open.remove(peer)).then(|| answer.clone())
    }
}

/// Returns the error for a body that is too large.
fn too_large(length: usize, max: usize) -> Error {
    Error::new(
        ErrorKind::Limit,
        format!("the answer has {length} bytes; the limit is answer_bytes_max={max}"),
    )
}
