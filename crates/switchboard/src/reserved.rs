//! Names of metadata that have a meaning for Switchboard itself.

/// Number of the attempt, on calls that a client retries or hedges.
pub(crate) const ATTEMPT: &str = "switchboard-attempt";

/// Metadata by which a caller requests a report on the limits of its call, and its value.
pub(crate) const EXPLAIN_REQUEST: (&str, &str) = ("switchboard-explain", "limits");

/// Key of a call that may be sent more than once and runs once.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Metadata of the reply, or of the status, that contains the report on the limits.
pub(crate) const LIMITS_REPORT: &str = "switchboard-limits";
