//! Names of metadata that have a meaning for Switchboard itself.

/// Number of the attempt, on calls that a client retries or hedges.
pub const ATTEMPT: &str = "switchboard-attempt";

/// Metadata by which a caller requests a report on the limits of its call, and its value.
pub const EXPLAIN_REQUEST: (&str, &str) = ("switchboard-explain", "limits");

/// Key of a call that may be sent more than once and runs once.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Metadata of the reply, or of the status, that contains the report on the limits.
pub const LIMITS_REPORT: &str = "switchboard-limits";
