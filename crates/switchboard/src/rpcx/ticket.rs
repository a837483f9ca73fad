//! Messages of the calls for files and streams, for both sides.

use super::{Meta, Pipe};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use switchboard_client::{Channel, ClientMethod};
use switchboard_core::{
    Result,
    codec::serde::{decode, encode},
};
use switchboard_wire::{Codec, Status};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, lookup_host},
    time::timeout,
};

/// Length of a token in bytes.
pub(super) const TOKEN_BYTES: usize = 32;
/// Time limit for opening the second connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Request for a file or a stream: a stream sets only the last field, a download all but the size.
/// MessagePack uses the names of Go's fields, JSON those of their tags.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct TicketRequest {
    #[serde(alias = "file_name")]
    pub(super) file_name: String,
    #[serde(alias = "file_size")]
    pub(super) file_size: i64,
    #[serde(alias = "meta")]
    pub(super) meta: Option<Meta>,
}

/// Response with the address to connect to, and the token to send there.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Ticket {
    pub(super) token: Bytes,
    pub(super) addr: String,
}

#[derive(Serialize)]
struct InJson<'a> {
    token: String,
    addr: &'a str,
}

impl Ticket {
    pub(super) fn encode(&self, codec: Codec) -> Result<Bytes> {
        match codec {
            Codec::Json => encode(&InJson { token: STANDARD.encode(&self.token), addr: &self.addr }, codec),
            codec => encode(self, codec),
        }
    }

    /// Requests a ticket from a server, and opens the second connection.
    pub(super) async fn of(
        channel: &Channel,
        method: &'static ClientMethod,
        request: &TicketRequest,
    ) -> Result<Pipe> {
        // Field names in JSON depend on tags; MessagePack is the default codec of Go clients.
        let codec = Codec::MsgPack;
        let ticket =
            channel.unary(method, codec, encode(request, codec), decode::<Ticket>).await?.into_inner();
        if ticket.token.len() != TOKEN_BYTES {
            let bytes = ticket.token.len();
            return Err(Status::internal(format!("{} sent a token of {bytes} bytes", method.path)));
        }
        let address = ticket.addr.as_str();
        let failed = |why: &dyn std::fmt::Display| {
            Status::unavailable(format!("the second connection of {}, to {address}: {why}", method.path))
        };
        let hosts = channel.hosts();
        let dial = async {
            let allowed = allowed(address, &hosts).await.map_err(|error| failed(&error))?;
            if allowed.is_empty() {
                return Err(Status::permission_denied(format!(
                    "the second connection of {}: the server names {address}, and only {} may be dialled; allow \
                     another host with ChannelBuilder::file_hosts",
                    method.path,
                    hosts.join(", ")
                )));
            }
            TcpStream::connect(&allowed[..]).await.map_err(|error| failed(&error))
        };
        let mut socket = timeout(CONNECT_TIMEOUT, dial)
            .await
            .map_err(|_| failed(&format_args!("no response within {CONNECT_TIMEOUT:?}")))??;
        socket.write_all(&ticket.token).await.map_err(|error| failed(&error))?;
        Ok(Pipe::new(socket))
    }
}

/// Resolves `HOST:PORT`, as the server sent it, and returns the addresses that belong to one of `hosts`. By
/// default, servers written in Go send the address they listen at: only a port, or an unspecified address.
/// Both mean the server's own host.
///
/// # Errors
/// Fails on a name without an address, and on an address without a port.
async fn allowed(address: &str, hosts: &[String]) -> io::Result<Vec<SocketAddr>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "it is not HOST:PORT");
    let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut own = Vec::new();
    for host in hosts {
        // A name without an address allows no host.
        let Ok(found) = lookup_host((host.as_str(), port)).await else { continue };
        own.extend(found.map(canonical));
    }
    if host.is_empty() || host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified()) {
        return Ok(own);
    }
    let named = lookup_host((host, port)).await?.map(canonical);
    Ok(named.filter(|address| own.contains(address)).collect())
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_go_in_both_codecs() {
        let request = [
            (Codec::Json, &br#"{"file_name":"a","file_size":3,"meta":{"k":"v"}}"#[..]),
            (Codec::MsgPack, b"\x83\xa8FileName\xa1a\xa8FileSize\x03\xa4Meta\x81\xa1k\xa1v"),
        ];
        for (codec, bytes) in request {
            let request: TicketRequest = decode(codec, Bytes::from_static(bytes)).unwrap();
            let fields = (request.file_name.as_str(), request.file_size, request.meta.unwrap_or_default());
            assert_eq!(fields, ("a", 3, Meta::from([("k".to_owned(), "v".to_owned())])));
        }
        // Empty fields are omitted in JSON, and null in MessagePack.
        for (codec, bytes) in [(Codec::Json, &b"{}"[..]), (Codec::MsgPack, b"\x81\xa4Meta\xc0")] {
            assert!(decode::<TicketRequest>(codec, Bytes::from_static(bytes)).unwrap().meta.is_none());
        }
        let ticket = Ticket { token: Bytes::from_static(b"\xff\x01"), addr: "h:1".to_owned() };
        assert_eq!(ticket.encode(Codec::Json).unwrap(), r#"{"token":"/wE=","addr":"h:1"}"#);
        assert_eq!(
            ticket.encode(Codec::MsgPack).unwrap(),
            &b"\x82\xa5Token\xc4\x02\xff\x01\xa4Addr\xa3h:1"[..]
        );
    }

    #[tokio::test]
    async fn servers_name_hosts_of_the_channel_alone() {
        let hosts = ["127.0.0.1", "10.0.0.7", "::1"].map(str::to_owned);
        for (named, dialled) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            (":80", "127.0.0.1:80 10.0.0.7:80 [::1]:80"),
            ("0.0.0.0:80", "127.0.0.1:80 10.0.0.7:80 [::1]:80"),
            ("[::]:80", "127.0.0.1:80 10.0.0.7:80 [::1]:80"),
            ("10.0.0.8:80", ""),
            ("169.254.169.254:80", ""),
        ] {
            let found = allowed(named, &hosts).await.unwrap();
            let found: Vec<_> = found.iter().map(SocketAddr::to_string).collect();
            assert_eq!(found.join(" "), dialled, "{named}");
        }
        for wrong in ["", "h", "h:", "h:99999", "127.0.0.1"] {
            assert!(allowed(wrong, &hosts).await.is_err(), "{wrong}");
        }
    }
}
