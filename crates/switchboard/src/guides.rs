//! The pages of `docs/` whose examples are compiled and run with the documentation tests.

#[cfg(all(feature = "auth", feature = "http"))]
#[doc = include_str!("../../../docs/auth.md")]
struct Auth;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/balancing.md")]
struct Balancing;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/calls.md")]
struct Calls;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/compression.md")]
struct Compression;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/combining.md")]
struct Combining;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/configuration.md")]
struct Configuration;

#[doc = include_str!("../../../docs/extending.md")]
struct Extending;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/failures.md")]
struct Failures;

#[cfg(feature = "auth")]
#[doc = include_str!("../../../docs/layers.md")]
struct Layers;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/http-json.md")]
struct HttpJson;

#[cfg(feature = "http")]
#[doc = include_str!("../../../docs/lifecycle.md")]
struct Lifecycle;

#[cfg(feature = "auth")]
#[doc = include_str!("../../../docs/limits.md")]
struct Limits;

#[cfg(all(feature = "http", feature = "otlp"))]
#[doc = include_str!("../../../docs/observing.md")]
struct Observing;

#[doc = include_str!("../../../docs/proxy.md")]
struct Proxy;

#[cfg(all(feature = "http", feature = "tls"))]
#[doc = include_str!("../../../docs/tls.md")]
struct Tls;

#[cfg(all(feature = "auth", feature = "http", feature = "macros"))]
#[doc = include_str!("../../../docs/wires/rpcx.md")]
struct WiresRpcx;

#[cfg(all(feature = "macros", feature = "http"))]
#[doc = include_str!("../../../docs/wires/brpc.md")]
struct WiresBrpc;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/wires/erpc.md")]
struct WiresErpc;

#[cfg(feature = "macros")]
#[doc = include_str!("../../../docs/wires/kiss-rpc.md")]
struct WiresKissRpc;
