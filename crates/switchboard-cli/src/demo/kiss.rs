//! kiss-rpc: its callers identify functions by number.

use switchboard::Server;

/// The called methods, with the numbers that an interface compiler of kiss-rpc would assign.
const FUNCTIONS: [(&str, u64); 3] =
    [("demo.v1.Greeter/Greet", 1), ("demo.v1.Posts/Query", 2), ("bench.v1.Bench/Message", 3)];

/// Assigns the numbers to the methods.
pub(super) fn named(server: Server) -> Server {
    FUNCTIONS.iter().fold(server, |server, (name, number)| server.alias(format!("kiss/{number}"), *name))
}

/// Returns the URL of the server at `HOST:PORT`.
pub(super) fn url(address: &str) -> String {
    let functions: String =
        FUNCTIONS.iter().map(|(name, number)| format!("&function={name}:{number}")).collect();
    format!("tcp://{address}?wire=kiss{functions}")
}
