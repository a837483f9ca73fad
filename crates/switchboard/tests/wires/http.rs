//! A client of HTTP/1.1 for one request, and how metadata is written in headers.

use crate::spec::{CallSpec, Pairs, sorted};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// A response.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

/// Sends a POST on a connection of its own.
pub(crate) async fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> Got {
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n", body.len());
    // A server that refuses a large body need not read it.
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let first = line(&mut stream).await;
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = fields(&mut stream).await;
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    if value("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&line(&mut stream).await, 16).unwrap();
            if size == 0 {
                break;
            }
            read(&mut stream, size, &mut body).await;
            line(&mut stream).await;
        }
        trailers = fields(&mut stream).await;
    } else {
        let length = value("content-length").unwrap_or_else(|| panic!("{path}, {status}: {headers:?}"));
        read(&mut stream, length.parse().unwrap(), &mut body).await;
    }
    Got { status, headers, body, trailers }
}

async fn read(stream: &mut BufReader<TcpStream>, size: usize, into: &mut Vec<u8>) {
    let begin = into.len();
    into.resize(begin + size, 0);
    stream.read_exact(&mut into[begin..]).await.unwrap();
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

async fn fields(stream: &mut BufReader<TcpStream>) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    loop {
        let line = line(stream).await;
        let Some((name, value)) = line.split_once(':') else { return fields };
        fields.push((name.to_lowercase(), value.trim().to_owned()));
    }
}

/// The metadata of a call as lines of a head.
pub(crate) fn written(spec: &CallSpec) -> String {
    let line = |(name, value): &(String, Vec<u8>)| match name.ends_with("-bin") {
        true => format!("{name}: {}\r\n", STANDARD_NO_PAD.encode(value)),
        false => format!("{name}: {}\r\n", String::from_utf8_lossy(value)),
    };
    spec.metadata.iter().map(line).collect()
}

/// The deadline of a call as a line of a head.
pub(crate) fn timeout(spec: &CallSpec) -> String {
    spec.timeout.map_or(String::new(), |timeout| format!("connect-timeout-ms: {}\r\n", timeout.as_millis()))
}

/// Headers behind a prefix that are this test's metadata.
pub(crate) fn metadata(headers: &[(String, String)], prefix: &str) -> Pairs {
    let own = headers.iter().filter_map(|(name, value)| {
        let name = name.strip_prefix(prefix).filter(|name| name.starts_with("x-"))?;
        let value = match name.ends_with("-bin") {
            true => STANDARD_NO_PAD.decode(value.trim_end_matches('=')).unwrap(),
            false => value.clone().into_bytes(),
        };
        Some((name.to_owned(), value))
    });
    sorted(own.collect())
}
