//! Tips for a failed call: inspects the first bytes of the server to distinguish a wrong protocol from a server that is
//! down.

use super::{failure::Ended, target::Target, wire::Wire};
use std::{error::Error as _, io, time::Duration};
use switchboard::{Code, Codec, Origin};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Time limit of the inspection.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Adds a tip if there is one. A server that `replied` supports the wire: the inspection cannot explain the failure.
pub(super) async fn add(ended: &mut Ended, target: &Target, replied: bool) {
    if ended.tip.is_none() {
        ended.tip = match ended.during {
            Some(_) if target.wire.is_foreign() => Some(of_missing_schema(target.wire)),
            _ => tip(ended, target, replied).await,
        };
    }
}

/// Reflection needs gRPC; servers of other frameworks do not have it.
fn of_missing_schema(wire: Wire) -> String {
    match wire {
        wire if wire.usual_codec() == Codec::FlatBuffers => format!(
            "{} has no reflection: give the schema with --fbs FILE, send a table of FlatBuffers as bytes with --raw \
             unary --bytes hex, or call a server of Switchboard with --proto FILE or --raw unary",
            wire.title()
        ),
        Wire::THRIFT => "give the .thrift file of the service with --thrift FILE".into(),
        _ => "a server without gRPC has no reflection: give the schema with --proto FILE -I DIR or \
              --descriptor-set FILE, or send JSON as it is with --raw unary"
            .into(),
    }
}

async fn tip(ended: &Ended, target: &Target, replied: bool) -> Option<String> {
    let status = &ended.status;
    let address = target.address();
    if let Some(error) = status.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                return Some(format!(
                    "nothing listens at {address}: is the server running, and is this its port?"
                ));
            }
            io::ErrorKind::NotFound if address.starts_with("unix:") => {
                return Some(format!("there is no socket at {address}: is the server running?"));
            }
            _ if error.to_string().contains("lookup") => {
                return Some("the host's name is not known: is it spelled right?".into());
            }
            _ => {}
        }
    }
    let message = status.message();
    let came_from_the_method = status.origin() == Origin::Peer;
    if message.contains("message_bytes_max") && !came_from_the_method {
        return Some("accept larger messages with --max-message-size, as in 16MiB".into());
    }
    match status.code() {
        Code::Unauthenticated if came_from_the_method => {
            return Some("send credentials with -H 'authorization: …'".into());
        }
        Code::Unavailable | Code::Unknown | Code::Internal | Code::DeadlineExceeded | Code::Unimplemented
            if !came_from_the_method || message.is_empty() => {}
        _ => return None,
    }
    if replied || target.is_tls() {
        // The error of the handshake explains the failure.
        return None;
    }
    let (host, port) = target.host()?;
    let seen = look(&host, port, target.wire).await?;
    if status.code() == Code::DeadlineExceeded && matches!(seen, Seen::Http1 | Seen::Http2) {
        return None;
    }
    match seen {
        Seen::Tls => Some(format!("the server speaks TLS: call it as {}", address.replacen("tcp://", "tls://", 1))),
        Seen::Http1 if !target.wire.is_http() => {
            Some("the server responds in HTTP: try --wire grpc, or --wire connect".into())
        }
        Seen::Http1 if target.is_http1() => None,
        Seen::Http1 => Some(
            "the server responds in HTTP/1.1; if it supports Connect or gRPC-Web, add ?http=1 to the URL and \
             --wire connect or grpc-web; else is this the right port?"
                .into(),
        ),
        // A lost connection on another HTTP wire does not mean that the server lacks that wire.
        Seen::Http2
            if !target.wire.is_http()
                || target.wire != Wire::GRPC && status.code() != Code::Unavailable =>
        {
            Some("the server speaks HTTP/2, as gRPC does: try --wire grpc".into())
        }
        Seen::Http2 => None,
        Seen::Other => Some("the server responds to HTTP with another protocol: is this the right port?".into()),
        Seen::Silence => Some(
            "the server accepts connections and sends nothing: does it hang, or use TLS (tls://) or another \
             protocol?"
                .into(),
        ),
    }
}

/// The response of a server to an HTTP/1.1 request.
#[derive(Debug, Eq, PartialEq)]
enum Seen {
    Http1,
    Http2,
    Other,
    Silence,
    Tls,
}

/// Sends an HTTP/1.1 request and, if that gets a response, an HTTP/2 one: a server may support both.
async fn look(host: &str, port: u16, wire: Wire) -> Option<Seen> {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let seen = probe(host, port, request.as_bytes()).await?;
    if seen != Seen::Http1 || !wire.is_http() {
        return Some(seen);
    }
    match probe(host, port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await? {
        Seen::Http2 => Some(Seen::Http2),
        _ => Some(seen),
    }
}

async fn probe(host: &str, port: u16, request: &[u8]) -> Option<Seen> {
    let response = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut bytes = Vec::new();
        // Enough for the line in which TLS servers reject plaintext.
        while bytes.len() < 1024 && seen(&bytes) != Seen::Http2 {
            match timeout(PATIENCE, stream.read_buf(&mut bytes)).await {
                Ok(Ok(count)) if count > 0 => {}
                _ => break,
            }
        }
        Some(seen(&bytes))
    };
    timeout(2 * PATIENCE, response).await.ok().flatten()
}

fn seen(bytes: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(bytes);
    match bytes {
        [] => Seen::Silence,
        // A TLS alert.
        [0x15, 0x03, ..] => Seen::Tls,
        // SETTINGS, the first frame of HTTP/2.
        [0, _, _, 4, ..] => Seen::Http2,
        _ if text.starts_with("HTTP/1.") && text.contains("HTTPS") => Seen::Tls,
        _ if text.starts_with("HTTP/1.") => Seen::Http1,
        _ => Seen::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_identify_the_protocol() {
        for (bytes, expected) in [
            (&b""[..], Seen::Silence),
            (b"\x15\x03\x01\x00\x02\x02\x46", Seen::Tls),
            (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", Seen::Tls),
            (b"HTTP/1.1 404 Not Found\r\n", Seen::Http1),
            (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", Seen::Http2),
            (b"SSH-2.0-x\r\n", Seen::Other),
        ] {
            assert_eq!(seen(bytes), expected, "{bytes:?}");
        }
    }
}
