//! Setters of wires, compression, HTTP and WebSockets.

use crate::Server;
use switchboard_core::Error;
#[cfg(feature = "http")]
use switchboard_http::{Cors, HttpJson};
use switchboard_wire::{WireId, WireSet, WireSpec};

/// Wires that the server accepts.
impl Server {
    /// Accepts calls only on these wires, by their names in [`WIRES`](switchboard_core::wire::WIRES). A listener can
    /// restrict
    /// them further, `tcp://0.0.0.0:8080?wires=grpc,native`. The server closes connections of other wires as soon
    /// as it has detected them. Wires that were added before with [`wire`](Self::wire) are included only by name.
    pub fn wires<'a>(mut self, wires: impl IntoIterator<Item = &'a str>) -> Server {
        match WireSet::of_names(wires) {
            Ok(wires) => {
                self.guards.wires = Some(wires);
                self.guards.added_wires = WireSet::NONE;
            }
            Err(why) => self.config_errors.push(Error::config(format!("wires: {why}"))),
        }
        self
    }

    /// Adds a wire to those that the server accepts: one of [`WIRES`](switchboard_core::wire::WIRES), or one of the
    /// application,
    /// which is registered in this process. [`start`](Server::start) fails on a wire that cannot be registered, and on
    /// one that has no server.
    pub fn wire(mut self, spec: &'static WireSpec) -> Server {
        match WireId::register(spec) {
            Ok(wire) if spec.server.is_some() || spec.capabilities.http => {
                self.guards.added_wires.insert(wire);
            }
            Ok(wire) => {
                let text = format!(
                    "wire: listeners cannot accept {wire}: it has no server; plugins are added with `plugin`"
                );
                self.config_errors.push(Error::config(text));
            }
            Err(why) => self.config_errors.push(Error::config(why)),
        }
        self
    }
}

/// Messages: their compression on the native wire, and unknown fields.
impl Server {
    /// Sets whether compressed messages are accepted on the native wire, and replies to them compressed;
    /// default true. Replies are compressed only for callers that request it. On HTTP, compression is always
    /// available to callers.
    pub fn compression(mut self, on: bool) -> Server {
        self.compression.on = on;
        self
    }

    /// Sets the minimum size of compressed replies on the native wire; default 512 bytes.
    pub fn compression_bytes_min(mut self, bytes: u32) -> Server {
        self.compression.bytes_min = bytes;
        self
    }

    /// Sets whether replies of one method, `package.Service/Method`, are compressed on the native wire for
    /// callers that request it. Turn it off for images and other compressed content. Compressed requests are
    /// always accepted.
    pub fn method_compression(mut self, method: impl Into<String>, on: bool) -> Server {
        self.method_compression.push((method.into(), on));
        self
    }

    /// Refuses requests that have fields unknown to their types with `InvalidArgument` and the path of the first such
    /// field; the default is to ignore them. Applies to JSON and MessagePack on all wires; the other codecs write
    /// fields without names. The metadata `switchboard-strict-fields` of a call, `true` or `false`, takes precedence.
    ///
    /// Does not find unknown fields behind `#[serde(flatten)]` and in untagged and internally tagged enums. Decoding a
    /// strict request takes up to twice the time.
    ///
    /// ```
    /// let server = switchboard::Server::new().strict_fields();
    /// ```
    pub fn strict_fields(mut self) -> Server {
        self.strict_fields = true;
        self
    }
}

/// HTTP: browsers, HTTP/JSON and pages.
#[cfg(feature = "http")]
impl Server {
    /// Allows browsers to call from pages of other origins, in every HTTP protocol; off by default.
    pub fn cors(mut self, cors: Cors) -> Server {
        if let Err(what) = cors.check() {
            self.config_errors.push(Error::config(format!("cors: {what}")));
        }
        self.cors = Some(cors);
        self
    }

    /// Adds a host name of the server for browsers, `app.example`. This protects from DNS rebinding, which
    /// makes a page of any domain same-origin with this server.
    ///
    /// With a name, HTTP requests for other names get 421, except requests for an address, `localhost` or a
    /// name below it, and requests over a pipe or a Unix socket. Without a name, the same is checked only for
    /// browser requests from this machine: add the public name if a reverse proxy on this machine passes it
    /// on.
    pub fn host(mut self, name: impl AsRef<str>) -> Server {
        if let Err(what) = self.hosts.add(name.as_ref()) {
            self.config_errors.push(Error::config(format!("host: {what}")));
        }
        self
    }

    /// Sets the options of HTTP/JSON.
    pub fn http_json(mut self, options: HttpJson) -> Server {
        self.http_json = options;
        self
    }

    /// Serves these bytes for GET and HEAD of `path`, for a web page that calls the services; see
    /// `examples/browser`.
    ///
    /// The path is compared literally and takes precedence over other handlers; other HTTP methods are not
    /// affected. The content is stored once. Pages are sent with a strict `Content-Security-Policy`: a page
    /// can load scripts, styles, images and fonts only from this server, must not contain them inline, can
    /// connect only to this server (including WebSockets on the same host and port), and cannot be framed.
    /// Browsers revalidate it each time. [`start`](Server::start) fails on an invalid path or type, and on
    /// two pages at one path.
    ///
    /// ```
    /// let html = "<!doctype html><title>up</title>";
    /// let server = switchboard::Server::new().page("/", "text/html; charset=utf-8", html);
    /// ```
    pub fn page(
        mut self,
        path: impl Into<String>,
        content_type: &str,
        content: impl Into<bytes::Bytes>,
    ) -> Server {
        if let Err(what) = self.pages.add(&path.into(), content_type, content.into()) {
            self.config_errors.push(Error::config(format!("page: {what}")));
        }
        self
    }
}

/// WebSockets.
#[cfg(feature = "http")]
impl Server {
    /// Allows web pages of these origins to open WebSockets: `https://app.example`, or `*` for all. Pages of
    /// the host and port that the request names are allowed if that is an address, `localhost` or a
    /// [`host`](Server::host) of the server. Callers other than browsers are not affected.
    pub fn websocket_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.websockets.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Compresses WebSocket messages in both directions for callers that offer it (RFC 7692), as browsers
    /// always do.
    ///
    /// Off by default: it costs time, about 50 KiB for each connection on which a compressed message is
    /// arriving, and 300 KiB per thread. The sizes of messages also reveal something about their content if
    /// they contain secrets next to text that an attacker can choose. Neither side keeps its window between
    /// messages. Limits apply to the decompressed size; short messages are never compressed.
    pub fn websocket_deflate(mut self) -> Server {
        self.websockets.deflate = true;
        self
    }
}
