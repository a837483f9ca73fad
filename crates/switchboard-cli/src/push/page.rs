//! The page at `/` of a gateway: follows a room, and pushes to it.

use switchboard::Server;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Adds the page and its files.
pub(super) fn add(server: Server) -> Server {
    server
        .page("/", HTML, include_str!("page/index.html"))
        .page("/room.css", STYLE, include_str!("page/room.css"))
        .page("/room.mjs", SCRIPT, include_str!("page/room.mjs"))
}
