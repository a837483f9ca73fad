//! The guides in `docs` whose examples are compiled with the documentation tests.

#[doc = include_str!("../../../docs/lifecycle.md")]
struct Lifecycle;

#[doc = include_str!("../../../docs/observing.md")]
struct Observing;
