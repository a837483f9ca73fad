//! kiss-rpc: its callers identify functions by number.

use switchboard::Server;

/// The called methods, with the numbers that an interface compiler of kiss-rpc would assign.
const FUNCTIONS: [(&str, u64); 4] = [
    ("demo.v1.Greeter/Greet", 1),
    ("demo.v1.Posts/Query", 2),
    ("bench.v1.Bench/Message", 3),
    ("bench.v1.Bench/Echo", 4),
];

/// Assigns the numbers to the methods.
pub(crate) fn named(server: Server) -> Server {
    FUNCTIONS.iter().fold(server, |server, (name, number)| server.alias(format!("kiss/{number}"), *name))
}

/// Returns the options of a channel that follow `wire=kiss`.
pub(crate) fn options() -> String {
    FUNCTIONS.iter().map(|(name, number)| format!("&function={name}:{number}")).collect()
}
