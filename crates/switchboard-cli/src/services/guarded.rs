//! The guards of a production server: the default chain of `switchboard bench`.

use std::time::Duration;
use switchboard::{
    Server,
    auth::{Caller, Tokens},
    guard::{Concurrency, Fair, Rate},
};

/// The credential of its callers.
pub(crate) const TOKEN: &str = "t0ken-of-the-benchmark";
/// One call in this many is logged.
const LOGGED: u32 = 1000;

/// Adds the chain to the server, with limits for a benchmark; counters are always on.
pub(crate) fn guarded(server: Server) -> Server {
    server
        .deadline_max(Duration::from_secs(30))
        .auth(Tokens::default().token(TOKEN, Caller::new("bench")))
        .rate(Rate::per_second(1e8).by_caller())
        .concurrency(Concurrency::auto())
        .fair(Fair::by_caller())
        .access_log(LOGGED)
}
