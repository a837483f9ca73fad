//! The admin listener: what a server does, for people and programs that look after it.
//!
//! It has an address of its own, so nothing of it is ever on a public port: loopback or a Unix socket, or any address
//! with a token. Pages come as text, as JSON (`?format=json`, or by `Accept`), and as HTML for browsers. What they
//! show is bounded, and made when they are asked for.
//!
//! A page in a browser may reach a loopback port of its user's machine. So requests must name this host by address or
//! as `localhost`, and those that change something must come from no other origin.

mod listener;
mod page;
mod pages;
mod recent;

pub(crate) use listener::start;
pub use page::{Cell, Page, Table};

use crate::{Address, Error};
use std::{fmt, sync::Arc};

/// Where the admin pages are, and who may see them; see [`Server::admin`](crate::Server::admin).
#[derive(Clone)]
#[must_use = "the listener begins with a server"]
pub struct Admin {
    address: String,
    token: Option<String>,
    pages: Vec<(String, PageOf)>,
}

/// Makes a page of the application.
pub(crate) type PageOf = Arc<dyn Fn() -> Page + Send + Sync>;

impl Admin {
    /// At `address`: `tcp://127.0.0.1:9090`, `unix:/run/app.admin`. Without a [token](Self::token) it must be of this
    /// machine: a loopback address, or a Unix socket.
    pub fn at(address: impl Into<String>) -> Admin {
        Admin { address: address.into(), token: None, pages: Vec::new() }
    }

    /// Whoever asks must send `authorization: Bearer TOKEN`. There is no TLS here: across machines this belongs behind
    /// something that has it.
    pub fn token(mut self, token: impl Into<String>) -> Admin {
        self.token = Some(token.into());
        self
    }

    /// Shows a page of the application at `/NAME`, made anew each time. A name that a page of ours has replaces it.
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
    /// An address that is none, or one of other machines without a token.
    pub(crate) fn check(&self) -> Result<Address, Error> {
        let wrong = |why: &str| Error::config(format!("admin at {}: {why}", self.address));
        let address: Address = self.address.parse().map_err(|_| wrong("this is no address"))?;
        if let Some((name, _)) = self.pages.iter().find(|(name, _)| !is_name(name)) {
            return Err(wrong(&format!("{name:?} is no name of a page: letters, digits, - and _")));
        }
        match &address {
            Address::Tcp(host, _) if self.token.is_none() && !is_loopback(host) => {
                Err(wrong("other machines can reach this address: choose tcp://127.0.0.1, or set a token"))
            }
            Address::Tcp(..) | Address::Unix(_) => Ok(address),
            _ => Err(wrong("the admin listener takes tcp:// and unix: addresses")),
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
        // Not the token.
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Whether only this machine can reach it. Of names only `localhost` is known to stay what it is.
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
