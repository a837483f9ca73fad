//! Description of a wire for strategies: the bytes of valid and invalid calls.

use super::target::MESSAGE_BYTES_MAX;

/// A wire as hostile peers speak it. A new wire is one file in `wires/` and one line in `main.rs`.
#[derive(Clone, Copy)]
pub struct Wire {
    pub name: &'static str,
    /// The channel of the well-behaved caller, on `ADDRESS`.
    pub channel: &'static str,
    /// First bytes of a peer.
    pub hello: fn() -> Vec<u8>,
    /// A whole call of `Show` number `id`, whose message has [`MARKER`] and so many more bytes.
    pub show: fn(id: u32, padding: usize) -> Vec<u8>,
    /// A whole call of `Hold`, which does not end.
    pub hold: fn(id: u32) -> Vec<u8>,
    /// A call of a method that the server does not have.
    pub unknown: fn(id: u32) -> Vec<u8>,
    /// A call of `Show` with the largest head that the server takes.
    pub large_head: fn(id: u32) -> Vec<u8>,
    /// Ends a call early, where the wire can.
    pub cancel: Option<fn(id: u32) -> Vec<u8>>,
    /// Frames that cost the peer next to nothing. Calls in them have ids from 3,000,000 on.
    pub cheap: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// Bytes that follow no rule or are over a limit: each gets an error, or ends the connection.
    pub wrong: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// Calls whose compressed messages are over `message_bytes_max`.
    pub bombs: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// Calls behind one that waits. Where replies keep their order, the server does not read above its limits, and
    /// notices that the peer has gone when the call ends.
    pub behind_max: u32,
    /// Padding of a call with a large message.
    pub large: usize,
    /// Replies can be read: they have the marker of the request.
    pub readable: bool,
    /// The server has to be reached inside TLS.
    pub tls: bool,
}

/// Text in the message of each `Show`, and in its reply.
pub const MARKER: &str = "marker-of-a-reply";

/// A name and value that fill the metadata of a call nearly to `metadata_bytes_max`.
pub const LARGE_VALUE: usize = 15_000;

impl Wire {
    /// A wire without cheap frames, compression or cancellation.
    pub const PLAIN: Wire = Wire {
        name: "",
        channel: "",
        hello: Vec::new,
        show: |_, _| Vec::new(),
        hold: |_| Vec::new(),
        unknown: |_| Vec::new(),
        large_head: |_| Vec::new(),
        cancel: None,
        cheap: Vec::new,
        wrong: Vec::new,
        bombs: Vec::new,
        behind_max: u32::MAX,
        large: 64 << 10,
        readable: true,
        tls: false,
    };
}

/// The marker and so many more bytes.
pub fn text(padding: usize) -> String {
    MARKER.to_owned() + &"x".repeat(padding)
}

/// A message of JSON.
pub fn json(padding: usize) -> String {
    format!("{{\"s\":\"{}\"}}", text(padding))
}

/// A message of protobuf: field 2.
pub fn proto(padding: usize) -> Vec<u8> {
    let text = text(padding);
    let mut bytes = vec![0x12];
    varint(text.len() as u64, &mut bytes);
    bytes.extend(text.as_bytes());
    bytes
}

pub fn varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A field of protobuf with bytes in it.
pub fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(number << 3 | 2, &mut bytes);
    varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// A field of protobuf with a number in it.
pub fn number(field: u64, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(field << 3, &mut bytes);
    varint(value, &mut bytes);
    bytes
}

/// Zeros that are far over `message_bytes_max`, in gzip.
pub fn gzip_bomb() -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![0; 32 * MESSAGE_BYTES_MAX as usize]).unwrap();
    encoder.finish().unwrap()
}

/// Very many members of gzip, each of them empty.
pub fn gzip_members() -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"").unwrap();
    encoder.finish().unwrap().repeat(20_000)
}

/// Returns the bytes of [`gzip_bomb`] in the zlib format.
pub fn zlib_bomb() -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![0; 32 * MESSAGE_BYTES_MAX as usize]).unwrap();
    encoder.finish().unwrap()
}
