//! The pages of `docs/` whose examples are compiled and run with the documentation tests.

#[cfg(all(feature = "auth", feature = "http"))]
#[doc = include_str!("../../../docs/auth.md")]
struct Auth;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/balancing.md")]
struct Balancing;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/failures.md")]
struct Failures;

#[cfg(feature = "auth")]
#[doc = include_str!("../../../docs/layers.md")]
struct Layers;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/lifecycle.md")]
struct Lifecycle;

#[cfg(feature = "auth")]
#[doc = include_str!("../../../docs/limits.md")]
struct Limits;

#[cfg(all(feature = "http", feature = "otlp"))]
#[doc = include_str!("../../../docs/observing.md")]
struct Observing;
