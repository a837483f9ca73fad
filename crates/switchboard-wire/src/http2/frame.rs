//! Heads of frames, and the frames that have a fixed size (RFC 9113, sections 4 and 6).

use bytes::BytesMut;

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 9;

/// Sent by a client before its first frame (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Largest window (RFC 9113, section 6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Kinds of frames (RFC 9113, section 6).
pub mod kind {
    #![expect(missing_docs, reason = "the names are those of the RFC")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames (RFC 9113, section 6).
pub mod flag {
    #![expect(missing_docs, reason = "the names are those of the RFC")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Codes of errors (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    #![expect(missing_docs, reason = "the names are those of the RFC")]
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(10);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(12);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(13);
}

/// Violation of the protocol for which the connection ends: the code for GOAWAY, and the reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionError {
    /// Code of the GOAWAY.
    pub code: ErrorCode,
    /// Reason, for the GOAWAY and the log.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> ConnectionError {
        ConnectionError { code, reason }
    }
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FrameHead {
    /// Bytes of the payload, below 2^24.
    pub len: u32,
    /// One of [`kind`], or an extension, which is ignored.
    pub kind: u8,
    /// Some of [`flag`].
    pub flags: u8,
    /// Number of the stream, below 2^31; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head at the front of `bytes`; `None` if it is not complete.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<FrameHead> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD_BYTES>()?;
        let len = u32::from_be_bytes([0, a, b, c]);
        Some(FrameHead { len, kind, flags, stream: u32::from_be_bytes(stream) & WINDOW_MAX })
    }

    /// Returns the bytes of the head. The length must be below 2^24.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        debug_assert!(self.len < 1 << 24, "a frame of {} bytes", self.len);
        let [_, a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Returns true if the frame has the flag.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks the length and the stream of the frame; `len_max` is this side's `SETTINGS_MAX_FRAME_SIZE`.
    ///
    /// # Errors
    /// Returns an error for a length or a stream that the kind does not allow.
    pub fn check(self, len_max: u32) -> Result<(), ConnectionError> {
        let error = |code, reason| Err(ConnectionError::new(code, reason));
        if self.len > len_max {
            return error(ErrorCode::FRAME_SIZE_ERROR, "a frame is larger than SETTINGS_MAX_FRAME_SIZE");
        }
        let is_for_connection = matches!(self.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        let is_for_stream = matches!(
            self.kind,
            kind::DATA
                | kind::HEADERS
                | kind::PRIORITY
                | kind::RST_STREAM
                | kind::PUSH_PROMISE
                | kind::CONTINUATION
        );
        if is_for_connection && self.stream != 0 {
            return error(ErrorCode::PROTOCOL_ERROR, "a frame of the connection names a stream");
        }
        if is_for_stream && self.stream == 0 {
            return error(ErrorCode::PROTOCOL_ERROR, "a frame of a stream names none");
        }
        let is_right = match self.kind {
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.len == 4,
            kind::PRIORITY => self.len == 5,
            kind::PING => self.len == 8,
            kind::GOAWAY => self.len >= 8,
            kind::SETTINGS if self.has(flag::ACK) => self.len == 0,
            kind::SETTINGS => self.len.is_multiple_of(6),
            _ => true,
        };
        if is_right {
            Ok(())
        } else {
            error(ErrorCode::FRAME_SIZE_ERROR, "a frame has another length than its kind")
        }
    }
}

/// Returns the content of a DATA, HEADERS or PUSH_PROMISE frame without its padding.
///
/// # Errors
/// Returns an error for padding that is longer than the frame (RFC 9113, section 6.1).
pub fn without_padding(head: FrameHead, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let error = ConnectionError::new(ErrorCode::PROTOCOL_ERROR, "the padding is longer than its frame");
    let (padding, content) = payload.split_first().ok_or(error)?;
    let len = content.len().checked_sub(usize::from(*padding)).ok_or(error)?;
    Ok(&content[..len])
}

/// Returns the header block of a HEADERS frame whose padding was removed: without the priority.
///
/// # Errors
/// Returns an error for a frame that is too short for its priority, and for a stream that depends on itself.
pub fn without_priority(head: FrameHead, content: &[u8]) -> Result<&[u8], ConnectionError> {
    if !head.has(flag::PRIORITY) {
        return Ok(content);
    }
    let error = |code, reason| Err(ConnectionError::new(code, reason));
    let Some((dependency, rest)) = content.split_first_chunk::<4>() else {
        return error(ErrorCode::FRAME_SIZE_ERROR, "a HEADERS frame ends inside its priority");
    };
    let Some((_weight, block)) = rest.split_first() else {
        return error(ErrorCode::FRAME_SIZE_ERROR, "a HEADERS frame ends inside its priority");
    };
    if u32::from_be_bytes(*dependency) & WINDOW_MAX == head.stream {
        return error(ErrorCode::PROTOCOL_ERROR, "a stream depends on itself");
    }
    Ok(block)
}

/// Appends RST_STREAM.
pub fn put_reset(stream: u32, code: ErrorCode, into: &mut BytesMut) {
    put_number(kind::RST_STREAM, stream, code.0, into);
}

/// Appends WINDOW_UPDATE; the increment is from 1 to 2^31 − 1.
pub fn put_window_update(stream: u32, increment: u32, into: &mut BytesMut) {
    debug_assert!((1..=WINDOW_MAX).contains(&increment), "an increment of {increment}");
    put_number(kind::WINDOW_UPDATE, stream, increment, into);
}

fn put_number(kind: u8, stream: u32, number: u32, into: &mut BytesMut) {
    into.extend_from_slice(&FrameHead { len: 4, kind, flags: 0, stream }.to_bytes());
    into.extend_from_slice(&number.to_be_bytes());
}

/// Appends PING, or the response to one.
pub fn put_ping(content: [u8; 8], is_ack: bool, into: &mut BytesMut) {
    let flags = if is_ack { flag::ACK } else { 0 };
    into.extend_from_slice(&FrameHead { len: 8, kind: kind::PING, flags, stream: 0 }.to_bytes());
    into.extend_from_slice(&content);
}

/// Appends GOAWAY with the last stream that was or may have been processed.
pub fn put_go_away(last_stream: u32, code: ErrorCode, reason: &str, into: &mut BytesMut) {
    let len = 8 + reason.len() as u32;
    into.extend_from_slice(&FrameHead { len, kind: kind::GOAWAY, flags: 0, stream: 0 }.to_bytes());
    into.extend_from_slice(&last_stream.to_be_bytes());
    into.extend_from_slice(&code.0.to_be_bytes());
    into.extend_from_slice(reason.as_bytes());
}

/// Appends a header block as HEADERS and, if it is longer than `len_max`, CONTINUATION.
pub fn put_header_block(stream: u32, block: &[u8], ends_stream: bool, len_max: u32, into: &mut BytesMut) {
    let end = if ends_stream { flag::END_STREAM } else { 0 };
    let mut pieces = block.chunks(len_max.max(1) as usize);
    let mut piece = pieces.next().unwrap_or_default();
    let (mut kind, mut flags) = (kind::HEADERS, end);
    loop {
        let next = pieces.next();
        if next.is_none() {
            flags |= flag::END_HEADERS;
        }
        into.extend_from_slice(&FrameHead { len: piece.len() as u32, kind, flags, stream }.to_bytes());
        into.extend_from_slice(piece);
        let Some(next) = next else { return };
        (piece, kind, flags) = (next, self::kind::CONTINUATION, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, flags: u8, len: u32, stream: u32) -> FrameHead {
        FrameHead { len, kind, flags, stream }
    }

    #[test]
    fn heads_go_there_and_back_without_the_reserved_bit() {
        let head = head(kind::HEADERS, flag::END_HEADERS, 0x0012_3456, WINDOW_MAX);
        let mut bytes = head.to_bytes();
        assert_eq!(FrameHead::parse(&bytes), Some(head));
        bytes[5] |= 0x80;
        assert_eq!(FrameHead::parse(&bytes), Some(head));
        assert_eq!(FrameHead::parse(&bytes[..8]), None);
    }

    #[test]
    fn wrong_lengths_and_streams_have_the_code_of_the_rfc() {
        let (protocol, size) = (ErrorCode::PROTOCOL_ERROR, ErrorCode::FRAME_SIZE_ERROR);
        for (frame, code) in [
            (head(kind::DATA, 0, 1, 0), protocol),
            (head(kind::HEADERS, 0, 1, 0), protocol),
            (head(kind::CONTINUATION, 0, 1, 0), protocol),
            (head(kind::PING, 0, 8, 1), protocol),
            (head(kind::GOAWAY, 0, 8, 1), protocol),
            (head(kind::SETTINGS, 0, 6, 1), protocol),
            (head(kind::PING, 0, 7, 0), size),
            (head(kind::GOAWAY, 0, 7, 0), size),
            (head(kind::SETTINGS, 0, 5, 0), size),
            (head(kind::SETTINGS, flag::ACK, 6, 0), size),
            (head(kind::RST_STREAM, 0, 5, 1), size),
            (head(kind::WINDOW_UPDATE, 0, 3, 0), size),
            (head(kind::PRIORITY, 0, 4, 1), size),
            (head(kind::DATA, 0, 16_385, 1), size),
        ] {
            assert_eq!(frame.check(16_384).map_err(|error| error.code), Err(code), "{frame:?}");
        }
        for frame in [
            head(kind::WINDOW_UPDATE, 0, 4, 0),
            head(kind::WINDOW_UPDATE, 0, 4, 7),
            head(kind::SETTINGS, flag::ACK, 0, 0),
            head(kind::DATA, 0, 16_384, 1),
            head(0xfa, 0xff, 100, 0),
        ] {
            assert_eq!(frame.check(16_384), Ok(()), "{frame:?}");
        }
    }

    #[test]
    fn padding_and_priority_are_removed() {
        let padded = head(kind::HEADERS, flag::PADDED | flag::PRIORITY, 0, 3);
        let content = without_padding(padded, b"\x02\x00\x00\x00\x01\x10block..").unwrap();
        assert_eq!(without_priority(padded, content), Ok(&b"block"[..]));
        assert!(without_padding(padded, b"").is_err() && without_padding(padded, b"\x02a").is_err());
        assert_eq!(without_padding(padded, b"\x01a"), Ok(&b""[..]));
        assert!(without_priority(padded, b"\x00\x00\x00\x01").is_err(), "no weight");
        let on_itself = without_priority(padded, b"\x80\x00\x00\x03\x10").unwrap_err();
        assert_eq!(on_itself.code, ErrorCode::PROTOCOL_ERROR);
    }

    #[test]
    fn long_blocks_continue() {
        for (len, frames) in [(0, 1), (4, 1), (5, 2), (12, 3), (13, 4)] {
            let (block, mut into) = (vec![7; len], BytesMut::new());
            put_header_block(5, &block, true, 4, &mut into);
            let (mut rest, mut joined, mut count) = (&into[..], Vec::new(), 0);
            while let Some(head) = FrameHead::parse(rest) {
                assert_eq!(head.kind, if count == 0 { kind::HEADERS } else { kind::CONTINUATION });
                assert_eq!(head.has(flag::END_STREAM), count == 0);
                let end = HEAD_BYTES + head.len as usize;
                joined.extend_from_slice(&rest[HEAD_BYTES..end]);
                rest = &rest[end..];
                count += 1;
                assert_eq!(head.has(flag::END_HEADERS), rest.is_empty());
            }
            assert_eq!((joined, count), (block, frames));
        }
    }
}
