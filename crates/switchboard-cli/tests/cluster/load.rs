//! Callers that call without a pause, and what becomes of each of their calls.

use super::{
    method,
    process::{soon, until_or},
    text,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use switchboard::{Channel, Code, Codec, Kind, Origin, Retry, Status};
use tokio::task::JoinHandle;

/// Callers and what they have seen.
pub(crate) struct Load {
    channel: Channel,
    seen: Arc<Seen>,
    callers: Vec<JoinHandle<()>>,
}

struct Seen {
    stop: AtomicBool,
    /// Answers of each caller.
    answers: Vec<AtomicU64>,
    /// Calls that were sent more than once, and answered.
    retried: AtomicU64,
    /// Calls that must not be repeated and whose server died.
    lost: AtomicU64,
    /// Calls that should not have failed, some of them.
    wrong: Mutex<Vec<String>>,
}

impl Load {
    /// Begins to call. Of ten callers one says nothing of whether its calls may be repeated; the others allow it.
    pub(crate) fn start(channel: &Channel, callers: usize) -> Load {
        let seen = Arc::new(Seen {
            stop: AtomicBool::new(false),
            answers: (0..callers).map(|_| AtomicU64::new(0)).collect(),
            retried: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            wrong: Mutex::default(),
        });
        let caller = |at| tokio::spawn(caller(channel.clone(), seen.clone(), at));
        let callers = (0..callers).map(caller).collect();
        Load { channel: channel.clone(), seen, callers }
    }

    /// Waits until every caller has `more` answers than now.
    pub(crate) async fn goes_on(&self, what: &str, more: u64) {
        let before: Vec<_> = self.seen.answers.iter().map(|count| count.load(Relaxed)).collect();
        let behind = || {
            let now = self.seen.answers.iter().map(|count| count.load(Relaxed));
            now.zip(&before).filter(|(now, before)| *now < **before + more).count()
        };
        let why = || {
            let (lost, wrong) = (self.seen.lost.load(Relaxed), self.wrong());
            format!("{} wait, {lost} lost, {wrong:?}, {:#?}", behind(), self.channel.endpoints())
        };
        until_or(&format!("an answer for every caller {what}"), || behind() == 0, why).await;
        assert_eq!(self.wrong(), Vec::<String>::new(), "{what}");
    }

    /// Calls that failed and should not have, some of them.
    fn wrong(&self) -> Vec<String> {
        self.seen.wrong.lock().unwrap().clone()
    }

    /// Ends the callers, each with its call, and says what happened.
    pub(crate) async fn stop(self) -> String {
        self.seen.stop.store(true, Relaxed);
        for caller in self.callers {
            soon("the end of a caller's call", caller).await.unwrap();
        }
        let seen = self.seen;
        assert_eq!(*seen.wrong.lock().unwrap(), Vec::<String>::new());
        let answers: u64 = seen.answers.iter().map(|count| count.load(Relaxed)).sum();
        let (retried, lost) = (seen.retried.load(Relaxed), seen.lost.load(Relaxed));
        format!("{answers} answers, {retried} of them after retries; {lost} lost that must not be repeated")
    }
}

async fn caller(channel: Channel, seen: Arc<Seen>, at: usize) {
    let greet = method("Greet", Kind::Unary);
    let repeats = !at.is_multiple_of(10);
    while !seen.stop.load(Relaxed) {
        let call = channel.unary(greet, Codec::Proto, Ok(text("Ada")), |_, bytes| Ok(bytes));
        let call = if repeats { call.idempotent() } else { call };
        match soon("an answer", call).await {
            Ok(reply) => {
                assert_eq!(*reply, text("hello Ada"));
                seen.retried.fetch_add(u64::from(reply.attempts() > 1), Relaxed);
                seen.answers[at].fetch_add(1, Relaxed);
            }
            Err(status) if !repeats && is_honest(&status) => {
                seen.lost.fetch_add(1, Relaxed);
                // A caller of manners.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(status) => {
                let mut wrong = seen.wrong.lock().unwrap();
                if wrong.len() < 5 {
                    wrong.push(format!("{status}, {:?}, {:?}", status.retry(), status.origin()));
                }
                return;
            }
        }
    }
}

/// Returns whether it is the truth about a call that a server may have begun when it died: no retry is safe.
fn is_honest(status: &Status) -> bool {
    (status.code(), status.origin(), status.retry())
        == (Code::Unavailable, Origin::Connection, Retry::IfIdempotent)
}
