//! A listener before it is bound: address, limits and TLS settings.

use std::{borrow::Cow, sync::Arc};
use switchboard_core::{Error, Limit, Limits, limits::Source};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::{Acceptor, Plaintext, Tls};
use switchboard_net::net::{Address, transport::Listener};
use switchboard_wire::{Status, WireId, WireSet, sniff::Protocol};

/// Unparsed settings of a listener.
pub(super) struct Listening {
    url: String,
    limits: Vec<(Limit, u64)>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    /// Accepts the pipes instead of the transport of the address.
    listener: Option<Box<dyn Listener>>,
}

/// Parsed settings of a listener.
pub(super) struct Resolved {
    pub(super) address: Address,
    pub(super) limits: Arc<Limits>,
    pub(super) listener: Option<Box<dyn Listener>>,
    /// Enabled wires.
    pub(super) wires: WireSet,
    /// The only wire, if its servers speak first: it cannot be detected.
    pub(super) speaks_first: Option<WireId>,
    /// HTTP/2 connections are served by the machine of this product, which serves gRPC alone.
    #[cfg(feature = "http")]
    pub(super) http2_machine: bool,
    #[cfg(feature = "tls")]
    pub(super) acceptor: Option<Arc<Acceptor>>,
}

/// Environment variable with the engine of HTTP/2, `hyper` or `machine`, and the option of a listener. They are for
/// tests while the machine does not serve everything that HTTP/2 carries.
#[cfg(feature = "http")]
const HTTP2_ENGINE: &str = "SWITCHBOARD_HTTP2_ENGINE";

/// Returns the engine that an option of a listener names.
fn http2_engine(option: &str) -> Option<&str> {
    option.strip_prefix("http2_engine=").filter(|engine| matches!(*engine, "hyper" | "machine"))
}

/// TLS options in a URL.
#[derive(Default)]
struct TlsOptions<'a> {
    certificate: Option<&'a str>,
    key: Option<&'a str>,
    client_ca: Option<&'a str>,
    client_optional: bool,
    plaintext_too: bool,
    given: bool,
}

impl Listening {
    pub(super) fn new(url: String, limits: Vec<(Limit, u64)>) -> Listening {
        Listening {
            url,
            limits,
            #[cfg(feature = "tls")]
            tls: None,
            listener: None,
        }
    }

    pub(super) fn on(mut self, listener: Box<dyn Listener>) -> Listening {
        self.listener = Some(listener);
        self
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls(mut self, tls: Tls) -> Listening {
        self.tls = Some(tls);
        self
    }

    /// Parses the address with its options and loads the certificates.
    pub(super) fn resolve(self, limits: &Limits) -> Result<Resolved, Error> {
        let (address, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (own, address) = of_wire(address);
        let address: Address = address.parse().map_err(|status: Status| Error::config(status.message()))?;
        let mut limits = limits.clone();
        for (limit, value) in self.limits {
            limits.set(limit, value, Source::Listener)?;
        }
        let mut tls = TlsOptions::default();
        #[cfg(feature = "http")]
        let mut http2_machine = std::env::var_os(HTTP2_ENGINE).is_some_and(|engine| engine == "machine");
        let mut wires = own.map_or(WireSet::ALL, |wire| WireSet::from_iter([wire]));
        for option in options.split('&').filter(|option| !option.is_empty()) {
            if let Some(names) = option.strip_prefix("wires=") {
                if let Some(own) = own {
                    let text =
                        format!("listen on {}: {own}:// has the wire {own} alone; remove {option}", self.url);
                    return Err(Error::config(text));
                }
                wires = WireSet::of_names(names.split(','))
                    .map_err(|why| Error::config(format!("wires: {why}")))?;
            } else if let Some(engine) = http2_engine(option) {
                #[cfg(feature = "http")]
                {
                    http2_machine = engine == "machine";
                }
                #[cfg(not(feature = "http"))]
                let _ = engine;
            } else if let Some((name, value)) = option.split_once('=').filter(|(name, _)| name.contains('.'))
            {
                limits.add_plugin_option(name, value);
            } else if !tls.take(option)? {
                limits.parse(option, Source::Listener)?;
            }
        }
        #[cfg(feature = "tls")]
        let acceptor = acceptor(&address, self.tls, &tls)?;
        #[cfg(not(feature = "tls"))]
        if tls.given || matches!(address, Address::Tls(..)) {
            let text = "this program was built without TLS (feature `tls` of the crate `switchboard`)";
            return Err(Error::config(format!("listen on {address}: {text}")));
        }
        Ok(Resolved {
            address,
            limits: Arc::new(limits),
            listener: self.listener,
            wires,
            #[cfg(feature = "http")]
            http2_machine,
            speaks_first: only(wires).filter(|wire| wire.spec().speaks_first),
            #[cfg(feature = "tls")]
            acceptor,
        })
    }
}

/// Returns the wire that an address names, `NAME://HOST:PORT`, and the address of its listener. Only wires whose
/// servers speak first have such addresses: others share a listener.
fn of_wire(address: &str) -> (Option<WireId>, Cow<'_, str>) {
    let named = address.split_once("://").and_then(|(name, rest)| Some((WireId::named(name)?, rest)));
    match named.filter(|(wire, _)| wire.spec().speaks_first) {
        Some((wire, rest)) => (Some(wire), format!("tcp://{rest}").into()),
        None => (None, address.into()),
    }
}

/// Returns the wire of a set that has one.
fn only(wires: WireSet) -> Option<WireId> {
    let mut all = wires.iter();
    all.next().filter(|_| all.next().is_none())
}

impl Resolved {
    /// Returns whether the listener accepts connections of this protocol: those of an enabled wire, and HTTP if one
    /// of them is carried by it.
    pub(super) fn enables(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Wire(wire) => self.wires.has(wire),
            Protocol::Http1 | Protocol::Http2 => self.wires.iter().any(|wire| wire.spec().capabilities.http),
            // The protocol inside is checked after the handshake.
            Protocol::Tls => true,
        }
    }

    /// Returns the bound address in the form that callers use.
    pub(super) fn public(&self, bound: Address) -> Address {
        #[cfg(feature = "tls")]
        if let Some(acceptor) = &self.acceptor
            && acceptor.plaintext() == Plaintext::Refused
            && let Address::Tcp(host, port) = bound
        {
            return Address::Tls(host, port);
        }
        bound
    }
}

impl<'a> TlsOptions<'a> {
    /// Parses a TLS option; returns false if it is another option.
    fn take(&mut self, option: &'a str) -> Result<bool, Error> {
        let Some((name, value)) = option.split_once('=') else { return Ok(false) };
        let choice = |off: &str, on: &str| match value {
            value if value == off => Ok(false),
            value if value == on => Ok(true),
            _ => Err(Error::config(format!("{option}: expected {name}={off} or {name}={on}"))),
        };
        match name {
            "cert" => self.certificate = Some(value),
            "client" => self.client_optional = choice("required", "optional")?,
            "client_ca" => self.client_ca = Some(value),
            "key" => self.key = Some(value),
            "tls" => self.plaintext_too = choice("only", "optional")?,
            _ => return Ok(false),
        }
        self.given = true;
        Ok(true)
    }

    #[cfg(feature = "tls")]
    fn settings(&self, tls: Option<Tls>) -> Result<Option<Tls>, Error> {
        let tls = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(match tls {
                Some(tls) => tls.with_files(certificate, key),
                None => Tls::files(certificate, key),
            }),
            (None, None) => tls,
            _ => return Err(Error::config("tls: cert=FILE and key=FILE go together")),
        };
        let Some(mut tls) = tls else {
            return if self.given {
                Err(Error::config("tls: cert=FILE and key=FILE are missing"))
            } else {
                Ok(None)
            };
        };
        if let Some(roots) = self.client_ca {
            tls = tls.client_roots(roots);
        }
        if self.client_optional {
            tls = tls.client_optional();
        }
        if self.plaintext_too {
            tls = tls.plaintext_too();
        }
        Ok(Some(tls))
    }
}

#[cfg(feature = "tls")]
fn acceptor(
    address: &Address,
    tls: Option<Tls>,
    options: &TlsOptions<'_>,
) -> Result<Option<Arc<Acceptor>>, Error> {
    let wrong = |why: &str| Error::config(format!("listen on {address}: {why}"));
    match (address, options.settings(tls)?) {
        (Address::Tls(..), None) => Err(wrong("TLS needs a certificate: ?cert=FILE&key=FILE, or listen_tls")),
        (Address::Tcp(..) | Address::Tls(..), tls) => {
            tls.map(Acceptor::new).transpose().map(|acceptor| acceptor.map(Arc::new))
        }
        (_, Some(_)) => Err(wrong("TLS is for tcp:// and tls:// addresses")),
        (_, None) => Ok(None),
    }
}
