//! Statuses as errors of replies.

use switchboard::{Code, Status};
use switchboard_wire::{
    Retry,
    centrifuge::{Reply, code},
};

/// First code of the errors of an application.
const APPLICATION: u32 = 1_000;

/// An error of a command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: u32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: u32, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    pub(super) fn reply(self, id: u32) -> Reply {
        Reply::error(id, self.code, self.text)
    }

    /// Returns the error of a call. Codes without a counterpart are those of an application: 1000 and the number of the
    /// status.
    pub(super) fn of_call(status: &Status) -> Failure {
        let code = match status.code() {
            Code::Internal
            | Code::Unknown
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => return status.into(),
            other => APPLICATION.saturating_add(other as u32),
        };
        Failure::new(code, status.message())
    }
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Failure {
        let code = match status.code() {
            Code::PermissionDenied => code::PERMISSION_DENIED,
            Code::ResourceExhausted if matches!(status.retry(), Retry::After(_)) => code::TOO_MANY_REQUESTS,
            Code::ResourceExhausted => code::LIMIT_EXCEEDED,
            Code::InvalidArgument => code::BAD_REQUEST,
            Code::NotFound => code::UNKNOWN_CHANNEL,
            Code::Unimplemented => code::METHOD_NOT_FOUND,
            Code::Unauthenticated if is_expired(status) => code::TOKEN_EXPIRED,
            Code::Unauthenticated => code::UNAUTHORIZED,
            _ => code::INTERNAL,
        };
        Failure::new(code, status.message())
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::from(&status)
    }
}

/// Returns whether the credentials were valid once: clients then fetch new ones.
pub(super) fn is_expired(status: &Status) -> bool {
    status.code() == Code::Unauthenticated && status.message().ends_with("expired")
}
