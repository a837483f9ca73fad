//! Calls of a fleet that are more than one message on a ready connection: first connections, retries, hedges.

use super::{
    super::{Begin, Target, calls::Answer, unary},
    FailMode, Shared, Ticket, Trail, clock,
    link::Member,
    tries::Tries,
};
use crate::{Code, Metadata, Origin, Result, Retry, Status};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, time::Sleep};

/// What has happened to a call before it comes here.
pub(in super::super) enum First {
    /// Nothing.
    Nothing,
    /// Its first endpoint is chosen.
    Chosen(Ticket),
    /// It has failed there.
    Failed(Ticket, Status),
}

/// How long a call waits for a connection of an endpoint that should have one, when it could go elsewhere.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a balancer may choose nobody although somebody is connected.
const PASSED_OVER_MAX: u32 = 16;

type Attempt = Pin<Box<dyn Future<Output = (Arc<Member>, Result<Answer>)> + Send>>;

/// An attempt that has not ended.
struct Running {
    /// The number of its endpoint.
    endpoint: u64,
    attempt: Attempt,
}

/// Sends a unary call and waits for its answer, at as many endpoints as it takes.
pub(in super::super) async fn unary(
    shared: Arc<Shared>,
    begin: Begin,
    request: Bytes,
    first: First,
) -> Result<Answer> {
    let mut tries = Tries::new(deadline_of(&begin, &first));
    let mut running: Vec<Running> = Vec::new();
    let mut ticket = match first {
        First::Nothing => shared.next(&begin, &request, &mut tries).await?,
        First::Chosen(ticket) => ticket,
        First::Failed(ticket, status) => {
            tries.sent = 1;
            let member = ticket.failed(&status);
            shared.next_after(&begin, &request, &mut tries, member, status).await?
        }
    };
    loop {
        tries.sent += 1;
        let sent = begin.again(&tries);
        let endpoint = ticket.member().endpoint.number();
        let trail = begin.trail().cloned();
        let attempt = Box::pin(attempt(shared.clone(), ticket, sent, request.clone(), trail));
        running.push(Running { endpoint, attempt });
        let mut hedge = shared.hedge_after(&begin, &tries).map(|after| Box::pin(tokio::time::sleep(after)));
        ticket = loop {
            match race(&mut running, hedge.as_mut()).await {
                Event::Ended(_, Ok(answer)) => return Ok(Answer { attempts: tries.sent, ..answer }),
                // Another attempt may still succeed.
                Event::Ended(member, Err(status)) if !running.is_empty() => tries.note(member, status),
                Event::Ended(member, Err(status)) => {
                    break shared.next_after(&begin, &request, &mut tries, member, status).await?;
                }
                Event::Late => {
                    hedge = None;
                    // Not to the one that is late already.
                    let mut tried = tries.tried.clone();
                    tried.extend(running.iter().map(|running| running.endpoint));
                    // A hedge is a retry ahead of its time, and counts as one.
                    if let Some(ticket) = shared.choose(&begin, &request, &tried)
                        && shared.spend()
                    {
                        break ticket;
                    }
                }
            }
        };
    }
}

/// When the whole call has to have ended, which began with its first attempt.
fn deadline_of(begin: &Begin, first: &First) -> Option<Instant> {
    let from = match first {
        First::Failed(ticket, _) => clock::instant(ticket.begun_ns()),
        First::Chosen(_) | First::Nothing => crate::clock::now(),
    };
    begin.deadline(from)
}

enum Event {
    /// An attempt has ended, and is no longer among the running.
    Ended(Arc<Member>, Result<Answer>),
    /// It is time for another attempt.
    Late,
}

async fn race(running: &mut Vec<Running>, mut hedge: Option<&mut Pin<Box<Sleep>>>) -> Event {
    poll_fn(|cx| {
        for at in 0..running.len() {
            if let Poll::Ready((member, outcome)) = running[at].attempt.as_mut().poll(cx) {
                drop(running.swap_remove(at));
                return Poll::Ready(Event::Ended(member, outcome));
            }
        }
        match &mut hedge {
            Some(hedge) => hedge.as_mut().poll(cx).map(|()| Event::Late),
            None => Poll::Pending,
        }
    })
    .await
}

/// One attempt at one endpoint.
async fn attempt(
    shared: Arc<Shared>,
    mut ticket: Ticket,
    mut begin: Begin,
    request: Bytes,
    trail: Option<Arc<Trail>>,
) -> (Arc<Member>, Result<Answer>) {
    let method = begin.method.path;
    let noted =
        trail.as_ref().map(|trail| (trail, trail.begin(ticket.member().endpoint.address().to_owned())));
    let called = async {
        if !ticket.member().link.channel.is_ready() {
            let deadline = begin.deadline(crate::clock::now());
            ticket.member().connected(deadline).await?;
            begin.end_at(deadline);
            ticket.sent();
        }
        if let Some((trail, at)) = noted {
            trail.sent(at);
        }
        let target = ticket.member().link.channel.target();
        unary::run(Begin { target, ..begin }, request).await
    };
    let outcome = called.await;
    if let Some((trail, at)) = noted {
        trail.end(at, outcome.as_ref().map(|answer| [&answer.head, &answer.trailers]));
    }
    if outcome.is_ok() && shared.policy.hedges_by_percentile() {
        shared.latencies.note(method, Duration::from_nanos(clock::now().saturating_sub(ticket.begun_ns())));
    }
    (ticket.ended(&outcome), outcome)
}

impl Member {
    /// Ends once a call can be sent, which it nearly always can.
    pub(super) async fn connected(&self, deadline: Option<Instant>) -> Result<()> {
        let channel = &self.link.channel;
        if channel.is_ready() {
            return Ok(());
        }
        if Handle::try_current().is_err() {
            return channel.open().await;
        }
        let patient = crate::clock::now() + PATIENCE;
        let until = deadline.map_or(patient, |deadline| deadline.min(patient));
        tokio::time::timeout_at(until.into(), channel.open()).await.unwrap_or_else(|_| {
            let address = self.endpoint.address();
            if until < patient {
                return Err(Status::deadline_exceeded("no connection within the call's deadline"));
            }
            let status = Status::unavailable(format!("no connection to {address} within {PATIENCE:?}"));
            Err(status.with_origin(Origin::Path).with_retry(Retry::Safe))
        })
    }
}

impl Shared {
    /// Chooses an endpoint; waits for a connection while there is none.
    pub(super) async fn next(
        self: &Arc<Self>,
        begin: &Begin,
        request: &[u8],
        tries: &mut Tries,
    ) -> Result<Ticket> {
        let (mut pauses, mut passed_over) = (0, 0);
        loop {
            if tries.sent == 0 {
                self.spare(begin.method.path)?;
            }
            if (self.policy.fail == FailMode::Failtry || tries.stays)
                && let Some(member) = tries.last.take()
            {
                return Ok(Ticket::new(member, begin.method.path, clock::now()));
            }
            if let Some(ticket) = self.choose(begin, request, &tries.tried) {
                return Ok(ticket);
            }
            // All that are connected were tried: again from the first.
            tries.tried.clear();
            if let Some(ticket) = self.choose(begin, request, &[]) {
                return Ok(ticket);
            }
            match self.somebody(tries.deadline).await {
                Ok(()) if self.set().members.iter().all(|member| member.endpoint.weight() == 0) => {
                    let text = format!("no endpoint of {} takes traffic", self.base.name());
                    return Err(Status::unavailable(text).with_retry(Retry::Safe));
                }
                // One that was connected may have gone again. Nobody waits here: a balancer that wants none of those
                // who are there must not be asked without end.
                Ok(()) if passed_over < PASSED_OVER_MAX => passed_over += 1,
                Ok(()) => {
                    let text = format!("the balancer chose no endpoint of {}", self.base.name());
                    let status = Status::unavailable(text).with_retry(Retry::Safe);
                    return Err(std::mem::replace(tries, Tries::new(None)).fail(status));
                }
                // Servers that are being restarted are back in a moment.
                Err(status)
                    if status.code() == Code::Unavailable && self.waits(pauses, tries.deadline).await =>
                {
                    pauses += 1;
                }
                Err(status) => return Err(std::mem::replace(tries, Tries::new(None)).fail(status)),
            }
        }
    }

    /// Waits a little while nobody is connected; false when it has waited enough.
    async fn waits(&self, pauses: u32, deadline: Option<Instant>) -> bool {
        let pause = super::link::pause(pauses, Duration::from_secs(1));
        let in_time = deadline.is_none_or(|deadline| crate::clock::now() + pause < deadline);
        if self.policy.fail == FailMode::Failfast || pauses >= self.policy.retries || !in_time {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// The next endpoint after a failure.
    ///
    /// # Errors
    /// The failure, if the call must not be sent again.
    pub(super) async fn next_after(
        self: &Arc<Self>,
        begin: &Begin,
        request: &[u8],
        tries: &mut Tries,
        member: Arc<Member>,
        status: Status,
    ) -> Result<Ticket> {
        tries.note(member, status.clone());
        match self.again(begin, tries, &status) {
            None => return Err(std::mem::replace(tries, Tries::new(None)).into_status()),
            Some(Duration::ZERO) => {}
            Some(pause) => tokio::time::sleep(pause).await,
        }
        self.next(begin, request, tries).await
    }

    /// When a second attempt begins beside the one that runs, if it may.
    fn hedge_after(&self, begin: &Begin, tries: &Tries) -> Option<Duration> {
        if !self.policy.hedges() || tries.sent > 1 || !begin.is_idempotent() || Handle::try_current().is_err()
        {
            return None;
        }
        self.policy.hedge_after(|| self.latencies.p95(begin.method.path))
    }

    fn spend(&self) -> bool {
        self.budget.spend(self.calls(), clock::now())
    }
}

/// The metadata that tells a server the number of the attempt, from the second on.
pub(in super::super) const ATTEMPT: &str = "switchboard-attempt";

impl Begin {
    /// The call as it is sent for this attempt; where to is said later.
    pub(super) fn again(&self, tries: &Tries) -> Begin {
        let timeout = match tries.deadline {
            Some(deadline) => Some(deadline.saturating_duration_since(crate::clock::now())),
            None => self.timeout,
        };
        let mut metadata = Metadata::new();
        for (name, value) in self.metadata.iter() {
            // It was taken before.
            let _ = metadata.insert(name, value.clone());
        }
        if tries.sent > 1 {
            let _ = metadata.insert(ATTEMPT, tries.sent.to_string());
        }
        Begin {
            target: Target::Nowhere,
            method: self.method,
            codec: self.codec,
            compression: self.compression,
            timeout,
            reply_bytes_max: self.reply_bytes_max,
            metadata,
            mistake: None,
            asked: None,
        }
    }
}
