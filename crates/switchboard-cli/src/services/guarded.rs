//! What stands before the handlers of a production server: what `switchboard bench` means by the default chain.

use std::time::Duration;
use switchboard::{
    Server,
    auth::{Caller, Tokens},
    guard::{Concurrency, Fair, Rate},
};

/// What callers show to it.
pub(crate) const TOKEN: &str = "t0ken-of-the-benchmark";
/// It logs one call in so many.
const LOGGED: u32 = 1000;

/// The server behind the chain, with room for a benchmark; counters are always there.
pub(crate) fn guarded(server: Server) -> Server {
    server
        .deadline_max(Duration::from_secs(30))
        .auth(Tokens::default().token(TOKEN, Caller::new("bench")))
        .rate(Rate::per_second(1e8).by_caller())
        .concurrency(Concurrency::auto())
        .fair(Fair::by_caller())
        .access_log(LOGGED)
}
