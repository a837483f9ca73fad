//! What can be chosen for HTTP/JSON.

/// How a server speaks HTTP/JSON, for [`Server::http_json`](crate::Server::http_json).
///
/// ```
/// use switchboard::{HttpJson, Server};
///
/// let server = Server::new().http_json(HttpJson::new().print_defaults().without_openapi());
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "give it to `Server::http_json`"]
pub struct HttpJson {
    pub(super) ignore_unknown_parameters: bool,
    pub(super) openapi: bool,
    pub(super) print_defaults: bool,
}

impl Default for HttpJson {
    fn default() -> HttpJson {
        HttpJson::new()
    }
}

impl HttpJson {
    /// Refuses unknown parameters, leaves defaults out of replies, and describes the services at `/openapi.json`.
    pub fn new() -> HttpJson {
        HttpJson { ignore_unknown_parameters: false, openapi: true, print_defaults: false }
    }

    /// Takes queries with parameters that no field is called like, as trackers add them.
    pub fn ignore_unknown_parameters(mut self) -> HttpJson {
        self.ignore_unknown_parameters = true;
        self
    }

    /// Prints fields that have their default, for callers that look for every field: at the paths of rules, and in
    /// streams. It costs reading and writing each reply once more. Unset messages and `optional` fields stay out.
    pub fn print_defaults(mut self) -> HttpJson {
        self.print_defaults = true;
        self
    }

    /// Serves no description of the services at `/openapi.json`.
    pub fn without_openapi(mut self) -> HttpJson {
        self.openapi = false;
        self
    }
}
