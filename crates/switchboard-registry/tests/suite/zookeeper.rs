//! Frames of the ZooKeeper protocol, as a server reads and writes them.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) const GET_DATA: i32 = 4;
pub(crate) const GET_CHILDREN: i32 = 8;
pub(crate) const GET_CHILDREN_2: i32 = 12;

/// A request.
pub(crate) struct Request {
    pub(crate) xid: i32,
    pub(crate) operation: i32,
    rest: Vec<u8>,
}

impl Request {
    /// Returns true if the text, such as a part of a path, is in the request.
    pub(crate) fn names(&self, text: &str) -> bool {
        self.rest.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

async fn frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; usize::try_from(stream.read_i32().await.ok()?).ok()?];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

/// Begins a session.
pub(crate) async fn welcome(stream: &mut TcpStream) -> Option<()> {
    frame(stream).await?;
    let mut session = [0_i32.to_be_bytes(), 10_000_i32.to_be_bytes()].concat();
    session.extend(7_i64.to_be_bytes());
    session.extend(buffer(&[0; 16]));
    session.push(0);
    stream.write_all(&buffer(&session)).await.ok()
}

pub(crate) async fn read(stream: &mut TcpStream) -> Option<Request> {
    let frame = frame(stream).await?;
    let number = |at| Some(i32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
    Some(Request { xid: number(0)?, operation: number(4)?, rest: frame.get(8..)?.to_vec() })
}

/// The body of a response where every folder has one node, `name`, with this value.
pub(crate) fn body(operation: i32, name: &str, value: &[u8]) -> Vec<u8> {
    let stat = [0; 68];
    let names = [&1_i32.to_be_bytes()[..], &buffer(name.as_bytes())].concat();
    match operation {
        GET_DATA => [&buffer(value)[..], &stat].concat(),
        GET_CHILDREN => names,
        GET_CHILDREN_2 => [&names[..], &stat].concat(),
        _ => Vec::new(),
    }
}

/// A response as it is sent.
pub(crate) fn response(xid: i32, code: i32, body: &[u8]) -> Vec<u8> {
    let head = [&xid.to_be_bytes()[..], &9_i64.to_be_bytes(), &code.to_be_bytes()].concat();
    buffer(&[&head[..], body].concat())
}
