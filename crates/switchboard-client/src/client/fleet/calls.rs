//! Calls of a fleet that need more than one message on a ready connection: first connections, retries, hedges.

use super::{
    super::{Begin, Target, calls::RawResponse, unary},
    AttemptLog, EndpointPermit, FailMode, Shared, clock,
    link::Member,
    retry_state::RetryState,
};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};
use switchboard_core::{Result, backoff, reserved::ATTEMPT};
use switchboard_wire::{Code, Origin, Retry, Status};
use tokio::{runtime::Handle, time::Sleep};

/// Progress of a call before this module handles it.
pub(super) enum First {
    /// None.
    Nothing,
    /// Its first endpoint is selected.
    Chosen(EndpointPermit),
    /// It has failed there.
    Failed(EndpointPermit, Status),
}

/// Maximum time that a call waits for a connection of an endpoint when it could go to another one.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum number of empty picks of a balancer while an endpoint is connected.
const EMPTY_PICKS_MAX: u32 = 16;

type Attempt = Pin<Box<dyn Future<Output = (Arc<Member>, Result<RawResponse>)> + Send>>;

/// An attempt in flight.
struct Running {
    /// Number of its endpoint.
    endpoint: u64,
    attempt: Attempt,
}

/// Continues a unary call at the endpoint that was selected for it, or after its failure there.
pub(in super::super) async fn resume(
    permit: EndpointPermit,
    failure: Option<Status>,
    begin: Begin,
    request: Bytes,
) -> Result<RawResponse> {
    let shared = permit.member().shared.clone();
    let first = match failure {
        None => First::Chosen(permit),
        Some(status) => First::Failed(permit, status),
    };
    unary(shared, begin, request, first).await
}

/// Sends a unary call and waits for its reply, with as many attempts as the policy allows.
pub(super) async fn unary(
    shared: Arc<Shared>,
    begin: Begin,
    request: Bytes,
    first: First,
) -> Result<RawResponse> {
    let mut retry_state = RetryState::new(deadline_of(&begin, &first));
    let mut running: Vec<Running> = Vec::new();
    let mut permit = match first {
        First::Nothing => shared.next(&begin, &request, &mut retry_state).await?,
        First::Chosen(permit) => permit,
        First::Failed(permit, status) => {
            retry_state.sent = 1;
            let member = permit.failed(&status);
            shared.next_after(&begin, &request, &mut retry_state, member, status).await?
        }
    };
    loop {
        retry_state.sent += 1;
        let sent = begin.again(&retry_state);
        let endpoint = permit.member().endpoint.number();
        let attempt_log = begin.attempt_log().cloned();
        let attempt = Box::pin(attempt(shared.clone(), permit, sent, request.clone(), attempt_log));
        running.push(Running { endpoint, attempt });
        let mut hedge =
            shared.hedge_after(&begin, &retry_state).map(|after| Box::pin(tokio::time::sleep(after)));
        permit = loop {
            match race(&mut running, hedge.as_mut()).await {
                Event::Ended(_, Ok(response)) => {
                    return Ok(RawResponse { attempts: retry_state.sent, ..response });
                }
                // Another attempt may still succeed.
                Event::Ended(member, Err(status)) if !running.is_empty() => retry_state.note(member, status),
                Event::Ended(member, Err(status)) => {
                    break shared.next_after(&begin, &request, &mut retry_state, member, status).await?;
                }
                Event::Late => {
                    hedge = None;
                    // The slow endpoint is excluded.
                    let mut tried = retry_state.tried.clone();
                    tried.extend(running.iter().map(|running| running.endpoint));
                    // A hedge counts as a retry.
                    if let Some(permit) = shared.choose(&begin, &request, &tried)
                        && shared.spend()
                    {
                        break permit;
                    }
                }
            }
        };
    }
}

/// Deadline of the whole call, which began with its first attempt.
fn deadline_of(begin: &Begin, first: &First) -> Option<Instant> {
    let from = match first {
        First::Failed(permit, _) => clock::instant(permit.begun_ns()),
        First::Chosen(_) | First::Nothing => switchboard_core::clock::now(),
    };
    begin.deadline(from)
}

enum Event {
    /// An attempt has ended and was removed from the running ones.
    Ended(Arc<Member>, Result<RawResponse>),
    /// The time for a hedge has come.
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

/// Makes one attempt at one endpoint.
async fn attempt(
    shared: Arc<Shared>,
    mut permit: EndpointPermit,
    mut begin: Begin,
    request: Bytes,
    attempt_log: Option<Arc<AttemptLog>>,
) -> (Arc<Member>, Result<RawResponse>) {
    let method = begin.method.path;
    let noted = attempt_log
        .as_ref()
        .map(|attempt_log| (attempt_log, attempt_log.begin(permit.member().endpoint.address().to_owned())));
    let called = async {
        if !permit.member().link.channel.0.is_ready() {
            let deadline = begin.deadline(switchboard_core::clock::now());
            permit.member().connected(deadline).await?;
            begin.end_at(deadline);
            permit.sent();
        }
        if let Some((attempt_log, at)) = noted {
            attempt_log.sent(at);
        }
        let target = permit.member().link.channel.target();
        unary::run(Begin { target, ..begin }, request).await
    };
    let outcome = called.await;
    if let Some((attempt_log, at)) = noted {
        attempt_log.end(at, outcome.as_ref().map(|response| [&response.head, &response.trailers]));
    }
    if outcome.is_ok() && shared.policy.hedges_by_percentile() {
        shared.latencies.note(method, Duration::from_nanos(clock::now().saturating_sub(permit.begun_ns())));
    }
    (permit.ended(&outcome), outcome)
}

impl Member {
    /// Completes when a call can be sent, nearly always at once.
    pub(super) async fn connected(&self, deadline: Option<Instant>) -> Result<()> {
        let channel = &self.link.channel;
        if channel.0.is_ready() {
            return Ok(());
        }
        if Handle::try_current().is_err() {
            return channel.0.connect().await;
        }
        let latest = switchboard_core::clock::after(switchboard_core::clock::now(), CONNECT_WAIT_MAX);
        let until = deadline.map_or(latest, |deadline| deadline.min(latest));
        tokio::time::timeout_at(until.into(), channel.0.connect()).await.unwrap_or_else(|_| {
            let address = self.endpoint.address();
            if until < latest {
                return Err(Status::deadline_exceeded("no connection within the call's deadline"));
            }
            let status =
                Status::unavailable(format!("no connection to {address} within {CONNECT_WAIT_MAX:?}"));
            Err(status.with_origin(Origin::Connection).with_retry(Retry::Safe))
        })
    }
}

impl Shared {
    /// Selects an endpoint; waits for a connection while there is none.
    pub(super) async fn next(
        self: &Arc<Self>,
        begin: &Begin,
        request: &[u8],
        retry_state: &mut RetryState,
    ) -> Result<EndpointPermit> {
        let (mut pauses, mut empty_picks) = (0, 0);
        loop {
            if retry_state.sent == 0 {
                self.check_min_working(begin.method.path)?;
            }
            if (self.policy.fail == FailMode::Failtry || retry_state.same_endpoint)
                && let Some(member) = retry_state.last.take()
            {
                return Ok(EndpointPermit::new(member, begin.method.path, clock::now()));
            }
            if let Some(permit) = self.choose(begin, request, &retry_state.tried) {
                return Ok(permit);
            }
            // All connected endpoints were tried: start again with all of them.
            retry_state.tried.clear();
            if let Some(permit) = self.choose(begin, request, &[]) {
                return Ok(permit);
            }
            match self.wait_connected(retry_state.deadline).await {
                Ok(()) if self.set().members.iter().all(|member| member.endpoint.weight() == 0) => {
                    let text = format!("no endpoint of {} takes traffic", self.base.name());
                    return Err(Status::unavailable(text).with_retry(Retry::Safe));
                }
                // An endpoint that was connected may be lost again. There is no wait here, so the number of iterations
                // is limited: a balancer that selects none of the connected endpoints must not cause an endless loop.
                Ok(()) if empty_picks < EMPTY_PICKS_MAX => empty_picks += 1,
                Ok(()) => {
                    let text = format!("the balancer chose no endpoint of {}", self.base.name());
                    let status = Status::unavailable(text).with_retry(Retry::Safe);
                    return Err(std::mem::replace(retry_state, RetryState::new(None)).fail(status));
                }
                // Servers that restart are usually back soon.
                Err(status)
                    if status.code() == Code::Unavailable
                        && self.waits(pauses, retry_state.deadline).await =>
                {
                    pauses += 1;
                }
                Err(status) => return Err(std::mem::replace(retry_state, RetryState::new(None)).fail(status)),
            }
        }
    }

    /// Waits a little while no endpoint is connected; returns false when the call has waited enough.
    async fn waits(&self, pauses: u32, deadline: Option<Instant>) -> bool {
        let pause = backoff::pause(pauses + 1, backoff::RETRY_MIN, Duration::from_secs(1));
        let in_time = deadline.is_none_or(|deadline| {
            switchboard_core::clock::after(switchboard_core::clock::now(), pause) < deadline
        });
        if self.policy.fail == FailMode::Failfast || pauses >= self.policy.retries || !in_time {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Selects the next endpoint after a failure.
    ///
    /// # Errors
    /// The failure, if the call must not be retried.
    pub(super) async fn next_after(
        self: &Arc<Self>,
        begin: &Begin,
        request: &[u8],
        retry_state: &mut RetryState,
        member: Arc<Member>,
        status: Status,
    ) -> Result<EndpointPermit> {
        retry_state.note(member, status.clone());
        match self.again(begin, retry_state, &status) {
            None => return Err(std::mem::replace(retry_state, RetryState::new(None)).into_status()),
            Some(Duration::ZERO) => {}
            Some(pause) => tokio::time::sleep(pause).await,
        }
        self.next(begin, request, retry_state).await
    }

    /// Returns the time after which a hedge is sent, if the call may have one.
    fn hedge_after(&self, begin: &Begin, retry_state: &RetryState) -> Option<Duration> {
        if !self.policy.hedges()
            || retry_state.sent > 1
            || !begin.is_idempotent()
            || Handle::try_current().is_err()
        {
            return None;
        }
        self.policy.hedge_after(|| self.latencies.p95(begin.method.path))
    }

    fn spend(&self) -> bool {
        self.budget.spend(self.calls(), clock::now())
    }
}

impl Begin {
    /// Creates the call for this attempt; its target is set later.
    pub(super) fn again(&self, retry_state: &RetryState) -> Begin {
        let timeout = match retry_state.deadline {
            Some(deadline) => Some(deadline.saturating_duration_since(switchboard_core::clock::now())),
            None => self.timeout,
        };
        let mut metadata = self.metadata.clone();
        if retry_state.sent > 1 {
            let _ = metadata.insert(ATTEMPT, retry_state.sent.to_string());
        }
        Begin {
            target: Target::Nowhere,
            method: self.method,
            codec: self.codec,
            compression: self.compression,
            timeout,
            reply_bytes_max: self.reply_bytes_max,
            metadata,
            early_error: None,
            options: None,
        }
    }
}
