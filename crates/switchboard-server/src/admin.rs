//! The admin listener: pages about the state of a server, for operators and monitoring.
//!
//! The listener has its own address, so its pages never appear on a public port: a loopback address or a Unix
//! socket, or any address with a token. Pages come as text, as JSON (`?format=json`, or by `Accept`), and as
//! HTML for browsers. Their size is bounded, and they are generated on request.
//!
//! A web page in a browser can send requests to loopback ports of the user's machine. Therefore a request
//! must name this host by address or as `localhost`, and a request that changes something must not come from
//! another origin.

mod listener;
mod page;
mod pages;
mod recent;
mod sources;
mod subscribers;

pub(crate) use listener::start;
pub use page::{Cell, Page, Table};

use std::{fmt, sync::Arc};
use switchboard_core::Error;
use switchboard_net::Address;

/// Address and access rules of the admin listener; see [`Server::admin`](crate::Server::admin).
#[derive(Clone)]
#[must_use = "the listener begins with a server"]
pub struct Admin {
    address: String,
    token: Option<String>,
    pages: Vec<(String, PageOf)>,
}

/// Function that generates a page of the application.
pub(crate) type PageOf = Arc<dyn Fn() -> Page + Send + Sync>;

impl Admin {
    /// Creates an admin listener at `address`: `tcp://127.0.0.1:9090`, `unix:/run/app.admin`. Without a
    /// [token](Self::token) the address must be a loopback address or a Unix socket.
    pub fn at(address: impl Into<String>) -> Admin {
        Admin { address: address.into(), token: None, pages: Vec::new() }
    }

    /// Requires `authorization: Bearer TOKEN` on every request. The listener has no TLS: to reach it from
    /// other machines, put it behind a proxy with TLS.
    pub fn token(mut self, token: impl Into<String>) -> Admin {
        self.token = Some(token.into());
        self
    }

    /// Shows a page of the application at `/NAME`, generated on each request. It replaces a built-in page of
    /// the same name.
    ///
    /// ```
    /// use switchboard::admin::{Admin, Page, Table};
    ///
    /// let admin = Admin::at("tcp://127.0.0.1:9090")
    ///     .page("cache", || Page::new("cache").table(Table::facts("cache").fact("entries", 17)));
    /// ```
    pub fn page(mut self, name: impl Into<String>, page: impl Fn() -> Page + Send + Sync + 'static) -> Admin {
        self.pages.push((name.into(), Arc::new(page)));
        self
    }

    /// # Errors
    /// Fails if the address is invalid, or if other machines can reach it and no token is set.
    pub(crate) fn check(&self) -> Result<Address, Error> {
        let wrong = |why: &str| Error::config(format!("admin at {}: {why}", self.address));
        let address: Address = self.address.parse().map_err(|_| wrong("this is not a valid address"))?;
        if let Some((name, _)) = self.pages.iter().find(|(name, _)| !is_name(name)) {
            return Err(wrong(&format!("{name:?} is not a valid page name: use letters, digits, - and _")));
        }
        match &address {
            Address::Tcp(host, _) if self.token.is_none() && !is_loopback(host) => {
                Err(wrong("other machines can reach this address: choose tcp://127.0.0.1, or set a token"))
            }
            Address::Tcp(..) | Address::Unix(_) => Ok(address),
            _ => Err(wrong("the admin listener supports only tcp:// and unix: addresses")),
        }
    }
}

impl From<&str> for Admin {
    fn from(address: &str) -> Admin {
        Admin::at(address)
    }
}

impl From<String> for Admin {
    fn from(address: String) -> Admin {
        Admin::at(address)
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is secret.
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Returns whether only this machine can reach the host. Of names, only `localhost` reliably resolves to a
/// loopback address.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_need_a_token() {
        for good in ["tcp://127.0.0.1:0", "tcp://[::1]:0", "localhost:1", "unix:/tmp/a"] {
            Admin::at(good).check().unwrap();
        }
        for bad in ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://10.0.0.1:1", "tcp://host:1", "memory://a", "x"]
        {
            assert!(Admin::at(bad).check().is_err(), "{bad}");
        }
        Admin::at("tcp://0.0.0.0:0").token("secret").check().unwrap();
        assert!(Admin::at("tcp://127.0.0.1:0").page("a/b", || Page::new("")).check().is_err());
    }
}
