//! What the calls for files and streams say, on both sides.

use super::{Meta, Pipe};
use crate::{
    Channel, ClientMethod, Codec, Result, Status,
    codec::serde::{decode, encode},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

/// Of a token.
pub(super) const TOKEN_BYTES: usize = 32;
/// For the second connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client asks for: of a stream the last field alone, of a download not the size. MessagePack has the names of
/// Go's fields, JSON those of its tags.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Asked {
    #[serde(alias = "file_name")]
    pub(super) file_name: String,
    #[serde(alias = "file_size")]
    pub(super) file_size: i64,
    #[serde(alias = "meta")]
    pub(super) meta: Option<Meta>,
}

/// Where to go, and what to say there.
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

    /// Asks a server for one, and goes where it says.
    pub(super) async fn of(channel: &Channel, method: &'static ClientMethod, asked: &Asked) -> Result<Pipe> {
        // Which names JSON has is a matter of tags; MessagePack is what clients in Go use.
        let codec = Codec::MsgPack;
        let ticket = channel.unary(method, codec, encode(asked, codec), decode::<Ticket>).await?.into_inner();
        if ticket.token.len() != TOKEN_BYTES {
            let bytes = ticket.token.len();
            return Err(Status::internal(format!("{} answers with a token of {bytes} bytes", method.path)));
        }
        let address = dialled(&ticket.addr);
        let failed = |why: &dyn std::fmt::Display| {
            Status::unavailable(format!("the second connection of {}, to {address}: {why}", method.path))
        };
        let dial = timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
        let mut socket = dial
            .map_err(|_| failed(&format_args!("no answer within {CONNECT_TIMEOUT:?}")))?
            .map_err(|error| failed(&error))?;
        socket.write_all(&ticket.token).await.map_err(|error| failed(&error))?;
        Ok(Pipe::new(socket))
    }
}

/// Servers in Go say what they listen at, unless they were told better: a port alone, which is dialled on this machine.
fn dialled(address: &str) -> String {
    match address.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_go_in_both_codecs() {
        let asked = [
            (Codec::Json, &br#"{"file_name":"a","file_size":3,"meta":{"k":"v"}}"#[..]),
            (Codec::MsgPack, b"\x83\xa8FileName\xa1a\xa8FileSize\x03\xa4Meta\x81\xa1k\xa1v"),
        ];
        for (codec, bytes) in asked {
            let asked: Asked = decode(codec, Bytes::from_static(bytes)).unwrap();
            let told = (asked.file_name.as_str(), asked.file_size, asked.meta.unwrap_or_default());
            assert_eq!(told, ("a", 3, Meta::from([("k".to_owned(), "v".to_owned())])));
        }
        // Empty fields are left out in JSON, and null in MessagePack.
        for (codec, bytes) in [(Codec::Json, &b"{}"[..]), (Codec::MsgPack, b"\x81\xa4Meta\xc0")] {
            assert!(decode::<Asked>(codec, Bytes::from_static(bytes)).unwrap().meta.is_none());
        }
        let ticket = Ticket { token: Bytes::from_static(b"\xff\x01"), addr: "h:1".to_owned() };
        assert_eq!(ticket.encode(Codec::Json).unwrap(), r#"{"token":"/wE=","addr":"h:1"}"#);
        assert_eq!(
            ticket.encode(Codec::MsgPack).unwrap(),
            &b"\x82\xa5Token\xc4\x02\xff\x01\xa4Addr\xa3h:1"[..]
        );
        assert_eq!((dialled(":80"), dialled("h:80")), ("127.0.0.1:80".to_owned(), "h:80".to_owned()));
    }
}
