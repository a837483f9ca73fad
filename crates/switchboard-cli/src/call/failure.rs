//! Failures of a command, with their exit codes.

use serde_json::{Value, json};
use std::process::ExitCode;
use switchboard::{Code, Status};

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
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Output(_) => 1,
            Failure::Status(ended) => STATUS_BASE + ended.status.code().number() as u8,
        }
    }

    /// Returns the code of a status.
    pub(crate) fn status_code(&self) -> Option<Code> {
        match self {
            Failure::Status(ended) => Some(ended.status.code()),
            Failure::Usage(_) | Failure::Output(_) => None,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
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

    /// Returns the status as an object. A usage error is one of the command, not of the server; the exit code
    /// distinguishes it.
    pub(crate) fn json(&self, details: &[Value]) -> Value {
        match self {
            Failure::Status(Ended { status, tip, .. }) => {
                let mut object = json!({
                    "code": status.code().name(),
                    "number": status.code().number(),
                    "message": status.message(),
                    "details": details,
                });
                if let Some(tip) = tip {
                    object["tip"] = tip.as_str().into();
                }
                object
            }
            Failure::Usage(text) | Failure::Output(text) => {
                let code = Code::InvalidArgument;
                json!({"code": code.name(), "number": code.number(), "message": text, "details": []})
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
