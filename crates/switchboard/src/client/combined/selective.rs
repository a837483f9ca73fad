//! Each call to one of several channels, and on failure to another.

use super::{
    super::{
        Begin, Channel,
        calls::Answer,
        fleet::{Budget, may_repeat},
        streaming::Begun,
        unary,
    },
    Combined,
};
use crate::{
    Code, Result, Retry, Status,
    balance::{Balance, Demand, Endpoint, Endpoints, Outcome, P2c, Pick},
    discover::Instance,
    stream::Queue,
};
use bytes::Bytes;
use std::{fmt, future::Future, sync::Arc, time::Duration};

/// A channel that sends each call to one of several channels, and on failure to another, see [`Channel::selective`].
/// Calls of all kinds; streams go elsewhere while they have not begun.
#[derive(Clone)]
#[must_use = "it is a channel once it is built"]
pub struct Selective {
    pub(super) channels: Vec<Channel>,
    balance: Arc<dyn Balance>,
    retries: u32,
    /// Each channel as balancers see it, in the same order.
    set: Arc<Endpoints>,
    budget: Arc<Budget>,
}

impl Channel {
    /// A channel that sends each call to one of these, chosen by latency and load, and on failure to another one that
    /// was not tried, if that does no harm: the server says that it did not begin, or the method or the call is
    /// idempotent. The channels may be anything: single servers, fleets of other data centres, combinations.
    pub fn selective(channels: impl IntoIterator<Item = Channel>) -> Selective {
        let channels: Vec<_> = channels.into_iter().collect();
        // Numbers that sort as they count.
        let endpoint = |at| Endpoint::new(Instance::new("", format!("channel {at}")).id(format!("{at:09}")));
        let set = Arc::new(Endpoints::new((0..channels.len()).map(endpoint).collect()));
        Selective {
            channels,
            balance: Arc::new(P2c),
            retries: 3,
            set,
            budget: Arc::new(Budget::new(10, 10, crate::clock::now_ns())),
        }
    }
}

impl Selective {
    /// Who takes a call, by default [`P2c`]. Channels have the ids `000000000`, `000000001` and so on.
    pub fn balance(mut self, balance: impl Balance) -> Selective {
        self.balance = Arc::new(balance);
        self
    }

    /// How often a call is sent again, 3 unless set; each time on a channel that was not tried.
    pub fn retries(mut self, most: u32) -> Selective {
        self.retries = most;
        self
    }

    /// Retries for 100 calls of the last seconds, and a second however few calls there were, 10 and 10 unless set.
    pub fn retry_budget(mut self, percent: u32, floor: u32) -> Selective {
        self.budget = Arc::new(Budget::new(percent, floor, crate::clock::now_ns()));
        self
    }

    /// The channel.
    ///
    /// # Errors
    /// `InvalidArgument` without any channel.
    pub fn build(self) -> Result<Channel> {
        Combined::Selective(self).into_channel()
    }

    pub(super) async fn unary(&self, begin: &Begin, request: &Bytes) -> Result<Answer> {
        let mut sent = 0;
        let send = |part: Begin| {
            sent += 1;
            unary::run(part, request.clone())
        };
        let answer = self.tried(begin, request, true, send).await?;
        Ok(Answer { attempts: answer.attempts + sent - 1, ..answer })
    }

    pub(super) async fn oneway(&self, begin: &Begin, request: &Bytes) -> Result<()> {
        self.tried(begin, request, true, |part| part.oneway(request.clone())).await
    }

    pub(super) async fn stream(
        &self,
        begin: &Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<Begun> {
        let request = message.clone().unwrap_or_default();
        // Requests that were taken out of their queue cannot be sent once more.
        let again = outbound.is_none();
        let send = |part: Begin| Box::pin(part.stream(message.clone(), outbound.clone()));
        self.tried(begin, &request, again, send).await
    }

    /// Sends the call to one channel after the other until one answers, or it must not be sent again.
    async fn tried<T, F>(
        &self,
        begin: &Begin,
        request: &[u8],
        again: bool,
        mut send: impl FnMut(Begin) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let deadline = begin.deadline(crate::clock::now());
        let (mut tried, mut retries) = (Vec::new(), 0);
        loop {
            let at = self.pick(begin, request, &tried);
            let taken = Taken::new(self, at, begin.method.path);
            let outcome = send(begin.part(&self.channels[at], deadline)).await;
            taken.ended(outcome.as_ref().err());
            let Err(status) = outcome else { return outcome };
            tried.push(self.set[at].number());
            let left = tried.len() < self.channels.len() && retries < self.retries && again;
            if !left || !may_repeat(&status, begin.is_idempotent()) {
                return Err(status);
            }
            let calls = self.set.iter().map(Endpoint::calls).sum();
            if !self.budget.spend(calls, crate::clock::now_ns()) {
                return Err(status);
            }
            if deadline.is_some_and(|deadline| deadline <= crate::clock::now()) {
                return Err(status);
            }
            retries += 1;
        }
    }

    /// Where the call goes next.
    fn pick(&self, begin: &Begin, request: &[u8], tried: &[u64]) -> usize {
        let key = begin.asked.as_ref().and_then(|asked| asked.hash_key.as_ref());
        let key = key.map_or(request, |key| &key[..]);
        let now_ns = crate::clock::now_ns();
        for demand in [Demand::Well, Demand::Connected] {
            let pick = Pick::new(begin.method.path, now_ns, crate::clock::chance())
                .with_key(Some(key))
                .tried(tried)
                .demanding(demand, "");
            let at = self.balance.pick(&self.set, &pick);
            // A balancer of the user may name whom it likes.
            if let Some(at) = at.filter(|at| *at < self.set.len() && pick.takes(&self.set[*at])) {
                return at;
            }
        }
        (0..self.set.len()).find(|at| !tried.contains(&self.set[*at].number())).unwrap_or(0)
    }
}

/// A call that a channel has. When it is dropped without an end, its caller gave up.
struct Taken<'a> {
    by: &'a Selective,
    at: usize,
    method: &'static str,
    begun_ns: u64,
    code: Code,
}

impl<'a> Taken<'a> {
    fn new(by: &'a Selective, at: usize, method: &'static str) -> Taken<'a> {
        let begun_ns = crate::clock::now_ns();
        by.set[at].stats().begun();
        by.set[at].stats().breakers().begun(method, begun_ns);
        Taken { by, at, method, begun_ns, code: Code::Canceled }
    }

    fn ended(mut self, failure: Option<&Status>) {
        self.code = failure.map_or(Code::Ok, |status| match status.retry() {
            // A refusal for load says nothing against the channel.
            Retry::After(_) => Code::ResourceExhausted,
            _ => status.code(),
        });
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let now_ns = crate::clock::now_ns();
        let took = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        let outcome = Outcome::new(took, self.code);
        let endpoint = &self.by.set[self.at];
        endpoint.stats().ended(&outcome, now_ns);
        let failed = (self.code != Code::Canceled).then(|| outcome.is_fault());
        let breaking = crate::balance::Breaking::default();
        endpoint.stats().breakers().ended(&breaking, self.method, failed, now_ns);
        self.by.balance.done(endpoint, &outcome);
    }
}

impl fmt::Debug for Selective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selective")
            .field("channels", &self.channels)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
