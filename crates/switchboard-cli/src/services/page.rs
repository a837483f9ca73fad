//! The page that calls the services from a browser: the files of `examples/browser`, inside the program. The folder is
//! linked into the crate, because a package contains nothing else.

use switchboard::Server;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Path, type and content of a file.
macro_rules! file {
    ($path:literal, $kind:expr, $name:literal) => {
        ($path, $kind, include_str!(concat!("../../browser/", $name)))
    };
}

const FILES: [(&str, &str, &str); 7] = [
    file!("/", HTML, "index.html"),
    file!("/page.css", STYLE, "page.css"),
    file!("/page.mjs", SCRIPT, "page.mjs"),
    file!("/switchboard.mjs", SCRIPT, "switchboard.mjs"),
    file!("/grpcweb.mjs", SCRIPT, "grpcweb.mjs"),
    file!("/jsonrpc.mjs", SCRIPT, "jsonrpc.mjs"),
    file!("/icon.svg", IMAGE, "icon.svg"),
];

/// Adds the page at `/`, and what it loads.
pub(super) fn add(server: Server) -> Server {
    FILES.into_iter().fold(server, |server, (path, kind, content)| server.page(path, kind, content))
}
