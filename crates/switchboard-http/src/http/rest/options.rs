//! Options of HTTP/JSON.

/// Options of HTTP/JSON for `Server::http_json`.
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
    /// Default options: refuses unknown parameters, omits defaults in replies, and serves the description of the
    /// services at `/openapi.json`.
    pub fn new() -> HttpJson {
        HttpJson { ignore_unknown_parameters: false, openapi: true, print_defaults: false }
    }

    /// Accepts queries with parameters that match no field, such as those that trackers add.
    pub fn ignore_unknown_parameters(mut self) -> HttpJson {
        self.ignore_unknown_parameters = true;
        self
    }

    /// Prints fields that have their default value, at the paths of rules and in streams, for callers that expect every
    /// field. It parses and writes each reply once more. Unset messages and `optional` fields are still omitted.
    pub fn print_defaults(mut self) -> HttpJson {
        self.print_defaults = true;
        self
    }

    /// Does not serve the description of the services at `/openapi.json`.
    pub fn without_openapi(mut self) -> HttpJson {
        self.openapi = false;
        self
    }
}
