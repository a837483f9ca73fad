//! The floor: the bare request/reply loop that Switchboard is measured against.
//!
//! It has the structure of Switchboard without a codec, limits, deadlines, metrics or calls that can fail individually:
//! single-thread workers that spin before they sleep, batched reads, an inline handler, one write per batch, a slab of
//! waiting callers. Its cost is that of the kernel and the runtime, so the ratio of Switchboard's throughput to it
//! shows the cost of the rest.
//!
//! A frame is `len: u32 LE | id: u32 LE | payload`, where `len` counts the id and the payload.

mod client;
mod server;
pub(super) mod spin;

pub use client::Connection;
pub(super) use server::serve;

use super::load::{Caller, Load};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Echo calls of `payload` to the floor server at `address`, replies compared in full.
#[derive(Clone, Debug)]
pub struct FloorEcho {
    pub address: String,
    pub payload: Bytes,
}

impl Load for FloorEcho {
    type Connection = Connection;
    type Caller = FloorCaller;

    async fn connect(&self) -> Result<Connection, String> {
        Connection::open(&self.address).await
    }

    fn caller(&self, connection: &Connection) -> FloorCaller {
        FloorCaller { connection: connection.clone(), payload: self.payload.clone() }
    }
}

pub struct FloorCaller {
    connection: Connection,
    payload: Bytes,
}

impl Caller for FloorCaller {
    async fn call(&mut self) -> Result<(), String> {
        let reply = self.connection.call(&self.payload).await?;
        if reply == self.payload {
            return Ok(());
        }
        Err(format!("the reply of {} bytes is not the request of {} bytes", reply.len(), self.payload.len()))
    }
}

/// Bytes of the length and the id before a payload.
const HEADER: usize = 8;

/// Room that a read always finds, so that a batch of small frames takes one read.
const READ_AT_LEAST: usize = 16 << 10;

/// Bytes by which the input buffer grows when it is full.
const BUFFER: usize = 64 << 10;

/// Makes room in `input` for one more read.
fn make_room(input: &mut BytesMut) {
    if input.capacity() - input.len() < READ_AT_LEAST {
        input.reserve(BUFFER);
    }
}

/// Takes one whole frame off the front of `input`, or makes room for the rest of it.
pub fn take_frame(input: &mut BytesMut) -> Option<(u32, Bytes)> {
    let len = (&**input).try_get_u32_le().ok()? as usize;
    if input.len() < 4 + len {
        input.reserve(4 + len - input.len());
        return None;
    }
    let mut frame = input.split_to(4 + len).freeze();
    frame.advance(4);
    let id = frame.try_get_u32_le().ok()?;
    Some((id, frame))
}

/// Appends one frame to `output`.
pub fn put_frame(output: &mut BytesMut, id: u32, payload: &[u8]) {
    let len =
        u32::try_from(payload.len() + HEADER - 4).expect("payloads are limited to 64 MB by the options");
    output.put_u32_le(len);
    output.put_u32_le(id);
    output.put_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_only_when_whole() {
        let mut whole = BytesMut::new();
        put_frame(&mut whole, 7, b"hello");
        put_frame(&mut whole, 8, b"");
        for cut in 0..13 {
            assert_eq!(take_frame(&mut BytesMut::from(&whole[..cut])), None, "cut at {cut}");
        }
        assert_eq!(take_frame(&mut whole), Some((7, Bytes::from_static(b"hello"))));
        assert_eq!(take_frame(&mut whole), Some((8, Bytes::new())));
        assert_eq!(take_frame(&mut whole), None);
    }
}
