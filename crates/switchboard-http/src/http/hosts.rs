//! The host names under which browsers reach the server.
//!
//! The owner of a domain can make its name resolve to any address, and a page of that domain then has the same origin
//! as the server at that address (DNS rebinding): no rule about origins refuses it. Only the host name in the request
//! differs, which pages cannot set.
//!
//! | names configured | checked |
//! | --- | --- |
//! | none | requests of browsers on this machine: servers that listen only on loopback are reached that way |
//! | `Server::host` | every request that came over a network |
//!
//! Addresses, `localhost` and names below it belong to no domain and always pass.

use super::rest::Failure;
use ::http::{
    HeaderMap, HeaderName, Request, StatusCode,
    header::{ACCEPT_LANGUAGE, HOST, ORIGIN, REFERER, USER_AGENT},
};
use std::net::IpAddr;
use switchboard_core::Peer;
use switchboard_wire::Status;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host names of a server, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

/// Origin of the requests of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// A socket that only this machine can reach, or a pipe: no browser reaches it.
    Pipe,
    /// This machine, over the network.
    Loopback,
    Network,
}

impl Source {
    pub(super) fn of(peer: &Peer) -> Source {
        match peer.socket.map(|socket| socket.ip().to_canonical()) {
            None => Source::Pipe,
            Some(address) if address.is_loopback() => Source::Loopback,
            Some(_) => Source::Network,
        }
    }
}

impl Hosts {
    /// # Errors
    /// A name with a scheme, port or path.
    pub fn add(&mut self, name: &str) -> Result<(), String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!(
                "`{name}` is not a host name: write it without scheme and port, as in app.example"
            ));
        }
        self.0.push(name.to_ascii_lowercase());
        Ok(())
    }

    /// Returns whether pages under this name, with a port or without, belong to this server.
    pub(super) fn has(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next(),
            None => host.split(':').next(),
        };
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        name == "localhost"
            || name.ends_with(".localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.0.iter().any(|own| own == name)
    }

    /// Refuses a request under a name that does not belong to the server.
    pub(super) fn refuse<B>(&self, request: &Request<B>, from: Source) -> Option<Failure> {
        let is_checked = match from {
            Source::Pipe => false,
            Source::Loopback => !self.0.is_empty() || is_of_browser(request.headers()),
            Source::Network => !self.0.is_empty(),
        };
        if !is_checked {
            return None;
        }
        let header = request.headers().get(HOST).map(|host| host.to_str().unwrap_or("?"));
        let authority = request.uri().authority().map(::http::uri::Authority::host);
        let wrong = header.into_iter().chain(authority).find(|host| !host.is_empty() && !self.has(host))?;
        let text = format!("the host {wrong:?} is not a name of this server: add it (Server::host)");
        Some(Failure::new(&Status::permission_denied(text)).with_http(StatusCode::MISDIRECTED_REQUEST))
    }
}

/// Returns whether a browser sent the request. Pages can change some of these headers and remove none of the others.
fn is_of_browser(headers: &HeaderMap) -> bool {
    let is_named = [ACCEPT_LANGUAGE, ORIGIN, REFERER, SEC_FETCH_MODE, SEC_FETCH_SITE]
        .iter()
        .any(|name| headers.contains_key(name));
    is_named || headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_refused_where_browsers_send_them() {
        let mut hosts = Hosts::default();
        for own in
            ["localhost", "LOCALHOST:80", "app.localhost", "127.0.0.1:1", "[::1]:1", "[::1]", "10.0.0.1"]
        {
            assert!(hosts.has(own), "{own}");
        }
        for other in
            ["evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "?", ""]
        {
            assert!(!hosts.has(other), "{other}");
        }
        let request = |host: &str, name: &str, value: &str| {
            let request = Request::get("/").header(HOST, host).header(name, value);
            request.body(()).expect("a request")
        };
        let page = |host| request(host, "accept-language", "en");
        let program = |host| request(host, "x-a", "b");
        let refused = |hosts: &Hosts, request: &Request<()>| {
            [Source::Pipe, Source::Loopback, Source::Network]
                .map(|from| hosts.refuse(request, from).is_some())
        };
        assert_eq!(refused(&hosts, &page("evil.example")), [false, true, false]);
        assert_eq!(refused(&hosts, &program("evil.example")), [false; 3]);
        assert_eq!(refused(&hosts, &page("localhost:80")), [false; 3]);
        assert_eq!(refused(&hosts, &request("a", "user-agent", "Mozilla/5.0")), [false, true, false]);
        hosts.add("App.example").expect("a name");
        assert_eq!(refused(&hosts, &page("app.example:443")), [false; 3]);
        assert_eq!(refused(&hosts, &program("evil.example")), [false, true, true]);
        for wrong in ["", "https://app.example", "app.example:80", "*"] {
            assert!(hosts.add(wrong).is_err(), "{wrong}");
        }
    }
}
