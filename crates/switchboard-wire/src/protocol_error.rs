//! Errors of peers, of wires that plugins serve.

/// Defines `ProtocolError`, the error of a peer: a kind of the type `ErrorKind`, and a text without the name of the
/// protocol, which `Display` adds.
macro_rules! protocol_error {
    ($(#[$doc:meta])* $wire:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct ProtocolError {
            kind: ErrorKind,
            message: String,
        }

        impl ProtocolError {
            pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> ProtocolError {
                ProtocolError { kind, message: message.into() }
            }

            /// Returns the broken rule.
            pub fn kind(&self) -> ErrorKind {
                self.kind
            }

            /// Returns the text without the name of the protocol.
            pub fn message(&self) -> &str {
                &self.message
            }
        }

        impl std::fmt::Display for ProtocolError {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($wire, ": {}"), self.message)
            }
        }

        impl std::error::Error for ProtocolError {}

        impl From<ProtocolError> for $crate::Fatal {
            fn from(error: ProtocolError) -> $crate::Fatal {
                $crate::Fatal(error.to_string())
            }
        }
    };
}

pub(crate) use protocol_error;

/// Returns the text for `what`, whose size in `unit` is over the limit called `name`.
pub(crate) fn over_limit(what: &str, size: u64, unit: &str, limit: u64, name: &str) -> String {
    format!("{what} has {size} {unit}; the limit is {limit} ({name})")
}
