//! Trailers of a stream that ended successfully, long after its head was sent.
//!
//! `connectrpc` reads the trailers of a stream before its first message. Therefore the stream stores its trailers at
//! its end in a cell that travels with the request, and [`Reply`](super::body::Reply) adds them to the last frame.

use ::http::HeaderMap;
use bytes::{BufMut, Bytes, BytesMut};
use connectrpc::Protocol;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The cell between a stream of replies and the body that carries it.
#[derive(Default)]
pub(super) struct Trailers {
    late: Mutex<Option<Late>>,
    /// The stream has begun: everything in its response comes from the handler.
    has_begun: AtomicBool,
    /// The handler set metadata for the head, and then failed.
    has_head: AtomicBool,
}

/// Trailers, and the protocol in which the last frame is written.
pub(super) struct Late {
    trailers: HeaderMap,
    protocol: Protocol,
}

impl Trailers {
    pub(super) fn set(&self, trailers: HeaderMap, protocol: Protocol) {
        *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(Late { trailers, protocol });
    }

    pub(super) fn take(&self) -> Option<Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn keep_head(&self) {
        self.has_head.store(true, Ordering::Relaxed);
    }

    /// Returns whether the head of a failure is sent separately.
    pub(super) fn has_head(&self) -> bool {
        self.has_head.load(Ordering::Relaxed)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

impl Late {
    pub(super) fn trailers(&self) -> &HeaderMap {
        &self.trailers
    }

    /// Adds the trailers for gRPC, whose trailers are headers.
    pub(super) fn add_to(self, trailers: &mut HeaderMap) {
        for (name, value) in &self.trailers {
            trailers.append(name, value.clone());
        }
    }

    /// Returns the frame with the trailers added, for protocols whose last frame is data; unchanged if it cannot be
    /// parsed.
    pub(super) fn written_into(&self, frame: &Bytes) -> Bytes {
        let Some((head, payload)) = frame.split_first_chunk::<5>() else { return frame.clone() };
        let payload = match self.protocol {
            Protocol::GrpcWeb => Some(self.lines(payload)),
            Protocol::Connect => self.json(payload),
            _ => None,
        };
        let Some(payload) = payload else { return frame.clone() };
        let mut written = BytesMut::with_capacity(head.len() + payload.len());
        written.put_u8(head[0]);
        written.put_u32(payload.len() as u32);
        written.put_slice(&payload);
        written.freeze()
    }

    fn lines(&self, payload: &[u8]) -> Vec<u8> {
        let mut lines = payload.to_vec();
        for (name, value) in &self.trailers {
            lines.extend_from_slice(name.as_str().as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
        lines
    }

    fn json(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let mut end: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(payload).ok()?;
        let metadata = end.entry("metadata").or_insert_with(|| serde_json::json!({})).as_object_mut()?;
        for (name, value) in &self.trailers {
            let values = metadata.entry(name.as_str()).or_insert_with(|| serde_json::json!([]));
            values.as_array_mut()?.push(value.to_str().ok()?.into());
        }
        serde_json::to_vec(&end).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    fn late(protocol: Protocol) -> Late {
        let mut trailers = HeaderMap::new();
        trailers.append("x", HeaderValue::from_static("1"));
        trailers.append("x", HeaderValue::from_static("2"));
        Late { trailers, protocol }
    }

    #[test]
    fn last_frames_get_the_trailers_in_their_dialect() {
        let connect = late(Protocol::Connect).written_into(&Bytes::from_static(b"\x02\0\0\0\x02{}"));
        assert_eq!(&connect[..], b"\x02\0\0\0\x1c{\"metadata\":{\"x\":[\"1\",\"2\"]}}");
        let web = Bytes::from_static(b"\x80\0\0\0\x10grpc-status: 0\r\n");
        let web = late(Protocol::GrpcWeb).written_into(&web);
        assert_eq!(&web[..], b"\x80\0\0\0\x1cgrpc-status: 0\r\nx: 1\r\nx: 2\r\n");
    }

    #[test]
    fn frames_that_cannot_be_read_stay_as_they_are() {
        for frame in [&b""[..], b"\x02\0\0", b"\x02\0\0\0\x02[]"] {
            let frame = Bytes::copy_from_slice(frame);
            assert_eq!(late(Protocol::Connect).written_into(&frame), frame);
        }
    }
}
