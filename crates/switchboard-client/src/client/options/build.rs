//! Building a channel: options are read from the URL and checked against each other and the addresses.

use super::{ChannelBuilder, RegistryHandle};
#[cfg(feature = "http")]
use crate::client::http::{Dialect, Http};
use crate::client::{Channel, address_list, pool::Pool, wires};
use std::sync::{Arc, Weak};
use switchboard_core::Result;
#[cfg(feature = "tls")]
use switchboard_net::net::tls::{self, Connector, TlsOptions};
use switchboard_net::net::{Address, Carries};
use switchboard_wire::Status;
#[cfg(feature = "http")]
use switchboard_wire::WireId;

impl ChannelBuilder {
    /// Builds the channel and waits for its first connection.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL or unusable TLS files, `Unavailable` when no address responds within
    /// [`connect_timeout`](Self::connect_timeout) or the TLS handshake fails.
    pub async fn connect(self) -> Result<Channel> {
        let channel = self.lazy()?;
        channel.0.connect().await?;
        Ok(channel)
    }

    /// Builds the channel; its first call connects.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL or unusable TLS files.
    pub fn lazy(mut self) -> Result<Channel> {
        if let Some(RegistryHandle(registry)) = self.registry.take() {
            return match self.config_error.take() {
                Some(config_error) => Err(config_error),
                None => self.into_followed(&*registry),
            };
        }
        let addresses = self.read_url()?;
        if let Some(config_error) = self.config_error.take() {
            return Err(config_error);
        }
        self.check_compression()?;
        let mut addresses: Vec<Address> = addresses.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        self.set_websocket_paths(&mut addresses)?;
        self.check_pushes()?;
        #[cfg(feature = "tls")]
        self.set_tls(&addresses)?;
        if addresses.len() > 1 || self.fleet.is_some() {
            return self.into_fleet(addresses);
        }
        #[cfg(feature = "http")]
        if let Some(dialect) = self.set_http(&addresses)?
            && !self.set_own_engine()
        {
            let make = |owner: &Weak<Http>| Http::new(addresses, dialect, self.options, owner.clone());
            return Ok(Channel(Arc::new_cyclic(make)));
        }
        let make = |owner: &Weak<Pool>| Pool::new(addresses, self.options, owner.clone());
        Ok(Channel(Arc::new_cyclic(make)))
    }

    /// Applies the options of the URL and returns its addresses.
    fn read_url(&mut self) -> Result<Vec<String>> {
        let url = self.url.clone();
        let (addresses, options) = address_list::split(&url)?;
        #[cfg(feature = "http")]
        if url.starts_with("http://") {
            self.options.http.dialect = Some(Dialect::Connect);
        }
        let mut rest = Vec::new();
        let wire_config = wires::of_options(&url, self.wire, &options, &mut rest)?;
        if let Some(wire) = self.wire.filter(|_| wire_config.is_none())
            && options.iter().all(|(name, _)| *name != "wire")
        {
            rest.push(("wire", wire.name()));
        }
        #[cfg(feature = "http")]
        let wire_config = match wire_config.as_ref().and_then(|wire_config| wire_config.setup.posted()) {
            Some(machine) => {
                self.options.http.post_thrift(machine);
                None
            }
            None => wire_config,
        };
        if wire_config.is_some() {
            self.options.wire_config = wire_config;
        }
        for (name, value) in rest {
            self.option(name, value)?;
        }
        Ok(addresses)
    }

    fn check_compression(&self) -> Result<()> {
        match self.options.compression.all().find(|compression| !compression.is_here()) {
            None => Ok(()),
            Some(missing) => Err(Status::invalid_argument(format!(
                "compression {missing} needs the feature http, which is off; use lz4 or snappy"
            ))),
        }
    }

    /// Gives WebSockets of a wire with bytes of its own the usual path of that wire.
    fn set_websocket_paths(&mut self, addresses: &mut [Address]) -> Result<()> {
        let Some(wire_config) = &self.options.wire_config else { return Ok(()) };
        if !addresses.iter().any(Address::is_websocket) {
            return Ok(());
        }
        let invalid = |why: &str| Status::invalid_argument(format!("the wire of {:?} {why}", self.url));
        let usual_path = wire_config.setup.websocket_path().map_err(invalid)?;
        self.options.dialling.carries = Carries::Bytes;
        for address in addresses {
            address.or_path(usual_path);
        }
        Ok(())
    }

    fn check_pushes(&self) -> Result<()> {
        let wire_config = self.options.wire_config.as_ref();
        let receives_pushes = wire_config.is_some_and(|wire_config| wire_config.spec.capabilities.push);
        if self.options.pushes.is_none() || receives_pushes {
            return Ok(());
        }
        let with_push = wires::names(|spec| spec.capabilities.push);
        let text = format!("the wire of {:?} does not support pushes; those that do: {with_push}", self.url);
        Err(Status::invalid_argument(text))
    }

    /// Creates the connector of TLS if an address needs one.
    #[cfg(feature = "tls")]
    fn set_tls(&mut self, addresses: &[Address]) -> Result<()> {
        let url = &self.url;
        if !addresses.iter().any(Address::is_tls) {
            if self.tls == TlsOptions::default() {
                return Ok(());
            }
            let text = format!(
                "ca, cert, key and server_name are for tls://HOST:PORT and wss://HOST:PORT, not for {url:?}"
            );
            return Err(Status::invalid_argument(text));
        }
        let (inside, bare) = (Address::is_websocket, |address: &Address| !address.is_websocket());
        let alpn = match (addresses.iter().any(inside), addresses.iter().any(bare)) {
            (true, true) if self.options.wire_config.is_none() => {
                let text = format!("{url:?} mixes wss:// with others: use a channel for each kind");
                return Err(Status::invalid_argument(text));
            }
            // The ALPN applies to the handshake of the WebSocket, which is HTTP/1.1.
            (true, _) => tls::ALPN_HTTP1,
            (false, _) => self.options.alpn(),
        };
        // Other frameworks have no ALPN name.
        let alpn = if self.options.wire_config.is_some() { &[][..] } else { &[alpn][..] };
        // A fleet shares one connector among all listed members.
        if self.options.dialling.tls.is_none() {
            self.options.dialling.tls = Some(Arc::new(Connector::new(self.tls.clone(), alpn)?));
        }
        Ok(())
    }

    /// Makes the channel one of a state machine, if the options select that engine for gRPC; returns true then.
    #[cfg(feature = "http")]
    fn set_own_engine(&mut self) -> bool {
        let Some(setup) = self.options.http.own_engine() else { return false };
        self.options.wire_config = Some(wires::ClientWireSetup { spec: WireId::GRPC.spec(), setup });
        true
    }

    /// Checks the compression for HTTP and WebSockets, and returns the dialect of a channel over HTTP.
    #[cfg(feature = "http")]
    fn set_http(&mut self, addresses: &[Address]) -> Result<Option<Dialect>> {
        let over_websocket = addresses.iter().all(Address::is_websocket);
        for compression in self.options.compression.all() {
            self.options.http.check(over_websocket, compression)?;
        }
        self.options.dialling.deflate = self.options.http.deflates();
        let dialect = self.options.http.dialect;
        if dialect.is_some() && over_websocket {
            self.options.dialling.carries = Carries::JsonRpc;
        }
        Ok(dialect)
    }
}
