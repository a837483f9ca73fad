//! Failures of a command, with their exit codes.

use std::process::ExitCode;
use switchboard::Status;

/// Added to the number of a status for the exit code, as in grpcurl.
const STATUS_BASE: u8 = 64;

#[derive(Debug)]
pub(crate) enum Failure {
    /// A usage error: the requested item does not exist or is malformed; the server is not at fault.
    Usage(String),
    /// Standard output cannot be written.
    Output(String),
    /// The call, or the query for the schema, ended with this status.
    Status(Ended),
}

/// A status and a tip for the user.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(super) status: Status,
    /// The operation that failed, if it was not the call.
    pub(super) during: Option<&'static str>,
    pub(super) tip: Option<String>,
}

impl Failure {
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Output(_) => 1,
            Failure::Status(ended) => STATUS_BASE + ended.status.code().number() as u8,
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    /// Returns lines for standard error.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Usage(text) | Failure::Output(text) => format!("switchboard: {text}"),
            Failure::Status(Ended { status, during, tip }) => {
                let during = during.map(|what| format!("{what}: ")).unwrap_or_default();
                let code = status.code();
                let mut text = format!("switchboard: {during}{code} ({})", code.number());
                if !status.message().is_empty() {
                    text += &format!(": {}", status.message());
                }
                if let Some(tip) = tip {
                    text += &format!("\n  tip: {tip}");
                }
                text
            }
        }
    }

    /// Creates the failure of the schema's source.
    pub(super) fn during(status: Status, what: &'static str) -> Failure {
        Failure::Status(Ended { status, during: Some(what), tip: None })
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(Ended { status, during: None, tip: None })
    }
}
