//! Access rules: allowed networks, and rules by method.

use std::{fmt, net::IpAddr, str::FromStr};
use switchboard_core::{Caller, Error, Peer, Result, pattern};
use switchboard_wire::Status;

/// Name of the OpenAPI document in rules and signatures.
pub const OPENAPI: &str = "openapi.json";

/// An address range: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns whether the network contains the address. IPv4-mapped IPv6 addresses are compared as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same(u128::from(network.to_bits()), u128::from(address.to_bits()), 32, self.bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same(network.to_bits(), address.to_bits(), 128, self.bits)
            }
            _ => false,
        }
    }
}

/// Returns whether the first `bits` of `width` bits are equal.
fn same(one: u128, other: u128, width: u32, bits: u8) -> bool {
    let shift = width - u32::from(bits);
    (one ^ other).checked_shr(shift).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Network, Error> {
        let wrong = || {
            Error::config(format!(
                "{text:?} is not a network: expected 10.0.0.0/8, 2001:db8::/32 or one address"
            ))
        };
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse::<u8>().map_err(|_| wrong()))?;
        if bits > width {
            return Err(wrong());
        }
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Addresses that may connect.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    #[doc(hidden)]
    pub allowed: Vec<Network>,
    #[doc(hidden)]
    pub denied: Vec<Network>,
}

impl Addresses {
    /// Returns whether a peer at this address may connect. Peers without an address, such as those on Unix
    /// sockets, always may.
    pub(crate) fn admits(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return true };
        let listed = |list: &[Network]| list.iter().any(|network| network.contains(address));
        !listed(&self.denied) && (self.allowed.is_empty() || listed(&self.allowed))
    }
}

/// Access rule for a set of methods, see `Server::rule`.
///
/// ```
/// use switchboard::guard::Rule;
///
/// let server = switchboard::Server::new()
///     .rule(Rule::methods("demo.Public/*").public())
///     .rule(Rule::methods("demo.Admin/*").roles(["admin"]).addresses(["10.0.0.0/8"]));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rule holds once a server has it"]
pub struct Rule {
    methods: String,
    public: bool,
    denied: bool,
    callers: Vec<String>,
    roles: Vec<String>,
    addresses: Vec<String>,
}

impl Rule {
    /// Creates a rule for the methods `package.Service/Method` that match the pattern, in which a star
    /// matches any text. Their callers must be authenticated and meet the further conditions of the rule.
    pub fn methods(pattern: impl Into<String>) -> Rule {
        let methods = pattern.into();
        Rule {
            methods,
            public: false,
            denied: false,
            callers: Vec::new(),
            roles: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Admits callers without credentials.
    pub fn public(mut self) -> Rule {
        self.public = true;
        self
    }

    /// Denies all calls.
    pub fn deny(mut self) -> Rule {
        self.denied = true;
        self
    }

    /// Admits only callers with these names.
    pub fn callers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.callers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Admits only callers with one of these roles.
    pub fn roles(mut self, roles: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.roles.extend(roles.into_iter().map(Into::into));
        self
    }

    /// Admits only these networks, such as `10.0.0.0/8`, or addresses. Peers without an address, on Unix
    /// sockets, pass.
    pub fn addresses(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Rule {
        self.addresses.extend(networks.into_iter().map(Into::into));
        self
    }

    /// Returns whether the rule applies to this method.
    pub(super) fn is_for(&self, method: &str) -> bool {
        pattern::matches(&self.methods, method)
    }

    /// Returns true for a rule that names a part of the description of the server: health, reflection, OpenAPI.
    pub(super) fn is_of_discovery(&self) -> bool {
        self.methods.starts_with("grpc.") || self.methods == OPENAPI
    }

    pub(super) fn pattern(&self) -> &str {
        &self.methods
    }

    pub(super) fn check(&self) -> Result<Check, Error> {
        let addresses = self.addresses.iter().map(|network| network.parse()).collect::<Result<_, _>>();
        Ok(Check {
            known: !self.public,
            denied: self.denied,
            callers: self.callers.clone(),
            roles: self.roles.clone(),
            addresses: Addresses { allowed: addresses?, denied: Vec::new() },
        })
    }
}

/// Combined rules of one method.
#[derive(Clone, Debug, Default)]
pub(super) struct Check {
    /// Callers must be authenticated.
    known: bool,
    denied: bool,
    callers: Vec<String>,
    roles: Vec<String>,
    addresses: Addresses,
}

impl Check {
    /// Creates the check of a method without a rule.
    pub(super) fn of_all(known: bool) -> Check {
        Check { known, ..Check::default() }
    }

    /// Checks the conditions that do not depend on the caller.
    ///
    /// # Errors
    /// `PermissionDenied` for a denied address, or if the rule denies every call.
    pub(super) fn before(&self, peer: &Peer) -> Result<()> {
        if self.denied {
            return Err(Status::permission_denied("a rule denies all calls to this method"));
        }
        if !self.addresses.admits(peer.socket.map(|socket| socket.ip())) {
            return Err(Status::permission_denied("this method may not be called from this address"));
        }
        Ok(())
    }

    /// Returns true if every caller from every address passes.
    pub(super) fn is_open(&self) -> bool {
        !self.known && !self.denied && self.addresses.allowed.is_empty()
    }

    /// Returns true if the caller must have credentials.
    #[cfg(feature = "http")]
    pub(super) fn needs_caller(&self) -> bool {
        self.known
    }

    /// # Errors
    /// `Unauthenticated` for a missing caller where one is required; `PermissionDenied` for a caller that the
    /// rule does not admit.
    pub(super) fn after(&self, caller: Option<&Caller>) -> Result<()> {
        let Some(caller) = caller else {
            return match self.known {
                true => Err(Status::unauthenticated("this method takes no calls without credentials")),
                false => Ok(()),
            };
        };
        let named = self.callers.is_empty() || self.callers.contains(&caller.name);
        let roles = self.roles.is_empty() || self.roles.iter().any(|role| caller.roles.contains(role));
        match named && roles {
            true => Ok(()),
            false => Err(Status::permission_denied("this caller may not call this method")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("192.0.2.7", "::ffff:192.0.2.7", true),
            ("::ffff:192.0.2.7", "192.0.2.7", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(text.parse::<Network>().unwrap_err().to_string().contains("is not a network"), "{text}");
        }
    }

    #[test]
    fn denied_addresses_are_denied_even_if_allowed() {
        let parse = |list: &[&str]| list.iter().map(|network| network.parse().unwrap()).collect();
        let both = Addresses { allowed: parse(&["10.0.0.0/8"]), denied: parse(&["10.1.0.0/16"]) };
        let admits = |lists: &Addresses, address: &str| lists.admits(Some(address.parse().unwrap()));
        assert!(admits(&both, "10.2.0.1"));
        assert!(!admits(&both, "10.1.0.1"));
        assert!(!admits(&both, "127.0.0.1"));
        assert!(both.admits(None));
        let denied = Addresses { allowed: Vec::new(), ..both };
        assert!(admits(&denied, "127.0.0.1") && !admits(&denied, "10.1.0.1"));
    }
}
