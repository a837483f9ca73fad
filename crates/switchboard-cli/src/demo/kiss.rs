//! kiss-rpc: its callers know functions by numbers.

use switchboard::Server;

/// The methods that are called, and the numbers that an interface compiler of kiss-rpc would give them.
const FUNCTIONS: [(&str, u64); 3] =
    [("demo.v1.Greeter/Greet", 1), ("demo.v1.Posts/Query", 2), ("bench.v1.Bench/Message", 3)];

/// Gives the methods their numbers.
pub(super) fn named(server: Server) -> Server {
    FUNCTIONS.iter().fold(server, |server, (name, number)| server.alias(format!("kiss/{number}"), *name))
}

/// The address of the server at `HOST:PORT`.
pub(super) fn url(address: &str) -> String {
    let functions: String =
        FUNCTIONS.iter().map(|(name, number)| format!("&function={name}:{number}")).collect();
    format!("tcp://{address}?wire=kiss{functions}")
}
