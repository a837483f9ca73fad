//! The failed attempts of one call, and the decision whether to retry it.

use super::{FailMode, Shared, clock, link::Member};
use crate::client::Begin;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::backoff;
use switchboard_wire::{Code, Idempotency, Origin, Retry, Status};

/// The failed attempts of one call.
pub(in super::super) struct RetryState {
    /// Numbers of endpoints that are not tried again while others are left.
    pub(super) tried: Vec<u64>,
    /// Addresses with the status of the call there.
    log: Vec<(String, Status)>,
    /// Number of attempts made.
    pub(super) sent: u32,
    /// Number of retries that count toward the maximum.
    counted: u32,
    /// True when the call may have begun on one of the servers.
    begun: bool,
    /// True when the call may have begun on the last endpoint, which alone recognizes its idempotency key.
    pub(super) same_endpoint: bool,
    /// The last endpoint.
    pub(super) last: Option<Arc<Member>>,
    /// Deadline of the whole call.
    pub(super) deadline: Option<Instant>,
}

impl RetryState {
    pub(super) fn new(deadline: Option<Instant>) -> RetryState {
        RetryState {
            tried: Vec::new(),
            log: Vec::new(),
            sent: 0,
            counted: 0,
            begun: false,
            same_endpoint: false,
            last: None,
            deadline,
        }
    }

    /// Records a failed attempt.
    pub(super) fn note(&mut self, member: Arc<Member>, status: Status) {
        self.begun |= status.retry() == Retry::IfIdempotent;
        self.tried.push(member.endpoint.number());
        self.log.push((member.endpoint.address().to_owned(), status));
        self.last = Some(member);
    }

    /// Builds the status for the caller: the last failure, with the earlier attempts.
    pub(super) fn into_status(mut self) -> Status {
        let Some((_, mut last)) = self.log.pop() else {
            return Status::internal("a call failed without an attempt");
        };
        if self.begun && matches!(last.retry(), Retry::Safe | Retry::After(_)) {
            // The retry advice applies to the last server only.
            last = last.with_retry(Retry::IfIdempotent);
        }
        if self.log.is_empty() {
            return last;
        }
        let mut text = format!("{} (tried {} times; before: ", last.message(), self.log.len() + 1);
        for (at, (address, status)) in self.log.iter().enumerate() {
            let join = if at == 0 { "" } else { "; " };
            // Most messages contain the address of their server.
            let named = status.message().contains(address.as_str());
            let at = if named { String::new() } else { format!("{address}: ") };
            text.push_str(&format!("{join}{at}{status}"));
        }
        text.push(')');
        with_text(last, text)
    }

    /// Builds the status for a failure that is not an attempt's.
    pub(super) fn fail(mut self, status: Status) -> Status {
        self.log.push((String::new(), status));
        self.into_status()
    }
}

/// Returns the status with another text; the original status is its source.
pub(in super::super) fn with_text(status: Status, text: String) -> Status {
    let rebuilt = Status::new(status.code(), text)
        .with_origin(status.origin())
        .with_retry(status.retry())
        .with_metadata(status.metadata().clone());
    let details = status.details().to_vec();
    let rebuilt = details
        .into_iter()
        .fold(rebuilt, |rebuilt, detail| rebuilt.with_detail(detail.type_name, detail.value));
    rebuilt.with_source(status)
}

/// Maximum pause before a retry on the same endpoint.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Maximum pause that a server may request; with longer ones the call fails.
const PUSHBACK_MAX: Duration = Duration::from_secs(60);

impl Shared {
    /// Returns the pause before the call is retried after it failed with `status`, or `None` when it must not be
    /// retried.
    pub(super) fn again(
        &self,
        begin: &Begin,
        retry_state: &mut RetryState,
        status: &Status,
    ) -> Option<Duration> {
        // A key that the wire does not carry has no effect.
        let keyed = begin.is_keyed() && retry_state.last.as_ref().is_some_and(|member| member.gets_keys());
        let idempotent = begin.is_idempotent();
        if self.policy.fail == FailMode::Failfast || !may_repeat(status, idempotent || keyed) {
            return None;
        }
        retry_state.same_endpoint |= keyed && !idempotent && status.retry() == Retry::IfIdempotent;
        let now_ns = clock::now();
        let elsewhere = self.policy.fail != FailMode::Failtry
            && !retry_state.same_endpoint
            && self.has_untried(&retry_state.tried);
        let unsent = is_unsent(status);
        // An attempt that sent nothing adds no load, so each endpoint may be tried once.
        if !(unsent && elsewhere) {
            if retry_state.counted >= self.policy.retries {
                return None;
            }
            retry_state.counted += 1;
            if !unsent && !self.budget.spend(self.calls(), now_ns) {
                return None;
            }
        }
        if !elsewhere {
            retry_state.tried.clear();
        }
        let pause = match status.retry() {
            Retry::After(wanted) if wanted > PUSHBACK_MAX => return None,
            Retry::After(wanted) => wanted.saturating_add(backoff::pause(1, backoff::RETRY_MIN, wanted / 8)),
            _ if elsewhere && status.origin() != Origin::Peer => Duration::ZERO,
            _ => backoff::pause(retry_state.counted, backoff::RETRY_MIN, BACKOFF_MAX),
        };
        let in_time = retry_state.deadline.is_none_or(|deadline| {
            switchboard_core::clock::after(switchboard_core::clock::now(), pause) < deadline
        });
        let can_wait = pause.is_zero() || tokio::runtime::Handle::try_current().is_ok();
        (in_time && can_wait).then_some(pause)
    }

    /// Returns true when an endpoint is connected where the call was not tried.
    fn has_untried(&self, tried: &[u64]) -> bool {
        let set = self.set();
        set.members.iter().any(|member| {
            member.state() == switchboard_discovery::balance::State::Up
                && member.endpoint.weight() > 0
                && !tried.contains(&member.endpoint.number())
        })
    }

    /// Total number of calls of all endpoints so far.
    pub(super) fn calls(&self) -> u64 {
        self.set().endpoints.iter().map(switchboard_discovery::balance::Endpoint::calls).sum()
    }
}

impl Begin {
    /// Returns true when the call has an idempotency key.
    fn is_keyed(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.keyed)
    }

    /// Returns true when the call may be repeated without harm.
    pub(in super::super) fn is_idempotent(&self) -> bool {
        let method = self.method.service.methods.get(usize::from(self.method.index));
        self.options.as_ref().is_some_and(|options| options.idempotent)
            || method.is_some_and(|method| method.idempotency != Idempotency::Unknown)
    }
}

/// Returns true when the status and the idempotency of the call allow a retry.
pub(in super::super) fn may_repeat(status: &Status, idempotent: bool) -> bool {
    match status.retry() {
        Retry::Safe | Retry::After(_) => true,
        Retry::IfIdempotent => {
            idempotent
                && matches!(
                    status.code(),
                    Code::Aborted
                        | Code::Internal
                        | Code::ResourceExhausted
                        | Code::Unavailable
                        | Code::Unknown
                )
        }
        _ => false,
    }
}

/// Returns true when the call failed before a byte of it was sent.
fn is_unsent(status: &Status) -> bool {
    status.retry() == Retry::Safe && status.origin() != Origin::Peer && status.code() == Code::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_repeated_when_safe_and_allowed_by_the_server() {
        let status = |code, retry| Status::new(code, "").with_retry(retry);
        for (code, retry, idempotent, again) in [
            (Code::Unavailable, Retry::Safe, false, true),
            (Code::ResourceExhausted, Retry::After(Duration::ZERO), false, true),
            (Code::Unavailable, Retry::IfIdempotent, false, false),
            (Code::Unavailable, Retry::IfIdempotent, true, true),
            (Code::NotFound, Retry::IfIdempotent, true, false),
            (Code::DeadlineExceeded, Retry::IfIdempotent, true, false),
            (Code::Unavailable, Retry::No, true, false),
        ] {
            assert_eq!(may_repeat(&status(code, retry), idempotent), again, "{code} {retry:?} {idempotent}");
        }
    }

    #[test]
    fn with_text_keeps_everything_but_the_text() {
        let mut status = Status::aborted("no").with_detail("a.B", &b"x"[..]).with_retry(Retry::Safe);
        status.metadata_mut().insert("x-why", "because").unwrap();
        let rebuilt = with_text(status.clone(), "no, again".into());
        assert_eq!(
            (rebuilt.code(), rebuilt.retry(), rebuilt.message()),
            (Code::Aborted, Retry::Safe, "no, again")
        );
        assert_eq!(rebuilt.details(), status.details());
        assert_eq!(rebuilt.metadata().text("x-why"), Some("because"));
    }
}
