//! What was tried for one call, and whether to try again.

use super::{
    FailMode, Shared, clock,
    link::{Member, pause},
};
use crate::{Code, Idempotency, Origin, Retry, Status, client::Begin};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The attempts of one call that have failed.
pub(in super::super) struct Tries {
    /// Numbers of endpoints where the call is not tried again while others are left.
    pub(super) tried: Vec<u64>,
    /// Addresses and what became of the call there.
    log: Vec<(String, Status)>,
    /// Attempts that were sent, or were to be.
    pub(super) sent: u32,
    /// Retries that count against the most that there may be.
    counted: u32,
    /// One of the servers may have begun.
    begun: bool,
    /// The call may have begun at the last endpoint, and only that one knows it again.
    pub(super) stays: bool,
    /// The last endpoint.
    pub(super) last: Option<Arc<Member>>,
    /// When the whole call has to have ended.
    pub(super) deadline: Option<Instant>,
}

impl Tries {
    pub(super) fn new(deadline: Option<Instant>) -> Tries {
        Tries {
            tried: Vec::new(),
            log: Vec::new(),
            sent: 0,
            counted: 0,
            begun: false,
            stays: false,
            last: None,
            deadline,
        }
    }

    /// An attempt has failed.
    pub(super) fn note(&mut self, member: Arc<Member>, status: Status) {
        self.begun |= status.retry() == Retry::IfIdempotent;
        self.tried.push(member.endpoint.number());
        self.log.push((member.endpoint.address().to_owned(), status));
        self.last = Some(member);
    }

    /// What the caller reads: the last failure, and before it where else the call was tried.
    pub(super) fn into_status(mut self) -> Status {
        let Some((_, mut last)) = self.log.pop() else {
            return Status::internal("a call failed that was not tried");
        };
        if self.begun && matches!(last.retry(), Retry::Safe | Retry::After(_)) {
            // That holds for the last server alone.
            last = last.with_retry(Retry::IfIdempotent);
        }
        if self.log.is_empty() {
            return last;
        }
        let mut text = format!("{} (tried {} times; before: ", last.message(), self.log.len() + 1);
        for (at, (address, status)) in self.log.iter().enumerate() {
            let join = if at == 0 { "" } else { "; " };
            // Most messages name their server.
            let named = status.message().contains(address.as_str());
            let at = if named { String::new() } else { format!("{address}: ") };
            text.push_str(&format!("{join}{at}{status}"));
        }
        text.push(')');
        reworded(last, text)
    }

    /// The same for a failure that is not an attempt's.
    pub(super) fn fail(mut self, status: Status) -> Status {
        self.log.push((String::new(), status));
        self.into_status()
    }
}

/// The same status with another text; the first one stays its cause.
pub(in super::super) fn reworded(status: Status, text: String) -> Status {
    let worded = Status::new(status.code(), text)
        .with_origin(status.origin())
        .with_retry(status.retry())
        .with_metadata(status.metadata().clone());
    let details = status.details().to_vec();
    let worded =
        details.into_iter().fold(worded, |worded, detail| worded.with_detail(detail.type_name, detail.value));
    worded.with_source(status)
}

/// The first pause before a retry at the same place; it doubles from there.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// The longest pause that a server may ask for; the caller is told of longer ones.
const PUSHBACK_MAX: Duration = Duration::from_secs(60);

impl Shared {
    /// How long to wait before the call is sent again after it failed with `status`; none when it must not be.
    pub(super) fn again(&self, begin: &Begin, tries: &mut Tries, status: &Status) -> Option<Duration> {
        // A key that was lost on the way is none.
        let keyed = begin.is_keyed() && tries.last.as_ref().is_some_and(|member| member.gets_keys());
        let idempotent = begin.is_idempotent();
        if self.policy.fail == FailMode::Failfast || !may_repeat(status, idempotent || keyed) {
            return None;
        }
        tries.stays |= keyed && !idempotent && status.retry() == Retry::IfIdempotent;
        let now_ns = clock::now();
        let elsewhere =
            self.policy.fail != FailMode::Failtry && !tries.stays && self.has_untried(&tries.tried);
        let unsent = never_left(status);
        // What did not leave this process loads nobody: each endpoint gets its chance.
        if !(unsent && elsewhere) {
            if tries.counted >= self.policy.retries {
                return None;
            }
            tries.counted += 1;
            if !unsent && !self.budget.spend(self.calls(), now_ns) {
                return None;
            }
        }
        if !elsewhere {
            tries.tried.clear();
        }
        let pause = match status.retry() {
            Retry::After(wanted) if wanted > PUSHBACK_MAX => return None,
            Retry::After(wanted) => wanted + pause(0, wanted / 8),
            _ if elsewhere && status.origin() != Origin::Peer => Duration::ZERO,
            _ => pause(tries.counted.saturating_sub(1), BACKOFF_MAX),
        };
        let in_time = tries.deadline.is_none_or(|deadline| crate::clock::now() + pause < deadline);
        let can_wait = pause.is_zero() || tokio::runtime::Handle::try_current().is_ok();
        (in_time && can_wait).then_some(pause)
    }

    /// Whether somebody is connected where the call was not tried.
    fn has_untried(&self, tried: &[u64]) -> bool {
        let set = self.set();
        set.members.iter().any(|member| {
            member.state() == crate::balance::State::Up
                && member.endpoint.weight() > 0
                && !tried.contains(&member.endpoint.number())
        })
    }

    /// Calls of all endpoints so far.
    pub(super) fn calls(&self) -> u64 {
        self.set().endpoints.iter().map(crate::balance::Endpoint::calls).sum()
    }
}

impl Begin {
    /// Whether its server knows it again.
    fn is_keyed(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.keyed)
    }

    /// Whether a second try does no harm.
    pub(in super::super) fn is_idempotent(&self) -> bool {
        let method = self.method.service.methods.get(usize::from(self.method.index));
        self.asked.as_ref().is_some_and(|asked| asked.idempotent)
            || method.is_some_and(|method| method.idempotency != Idempotency::Unknown)
    }
}

/// Whether the call may be sent once more, as far as its server is concerned.
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

/// Whether the call failed before a byte of it was sent.
fn never_left(status: &Status) -> bool {
    status.retry() == Retry::Safe && status.origin() != Origin::Peer && status.code() == Code::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_is_what_is_safe_and_what_the_server_allows() {
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
    fn rewording_keeps_all_but_the_text() {
        let mut status = Status::aborted("no").with_detail("a.B", &b"x"[..]).with_retry(Retry::Safe);
        status.metadata_mut().insert("x-why", "because").unwrap();
        let worded = reworded(status.clone(), "no, again".into());
        assert_eq!(
            (worded.code(), worded.retry(), worded.message()),
            (Code::Aborted, Retry::Safe, "no, again")
        );
        assert_eq!(worded.details(), status.details());
        assert_eq!(worded.metadata().text("x-why"), Some("because"));
    }
}
