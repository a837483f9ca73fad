//! Compression of messages on the native wire: selection of the algorithm, and decompression.
//!
//! A caller selects the [`Compression`] of a call, and both sides may then use it; a flag of each message
//! states whether it is compressed. Messages are compressed by the writer and decompressed by the reader, on
//! the handler's thread and in its time, not in the poll of the connection. In between they remain
//! compressed, so that queues and windows count the bytes on the wire.
//!
//! Compression takes time. It is skipped below a minimum size, and for methods whose recent messages did not
//! become smaller (`worth.rs`).
//!
//! Snappy and LZ4 are always available. The other algorithms are those that HTTP requires, and need the
//! feature `http`.

mod algorithms;
mod blocks;
#[cfg(feature = "http")]
mod deflate;
mod options;
mod worth;
#[cfg(feature = "http")]
mod zstd;

#[cfg(feature = "http")]
pub use algorithms::REGISTRY;
pub use options::{Calling, Serving};

use crate::Result;
use algorithms::Unreadable;
use bytes::Bytes;
use std::{fmt, str::FromStr};
use switchboard_wire::{Codec, Encoding, Encodings, Origin, Status};
use worth::Worth;

/// Default of the minimum size for compression, in bytes.
pub(crate) const BYTES_MIN: u32 = 512;

/// Encodings that this build can read and write.
pub(crate) const ENCODINGS: Encodings = if cfg!(feature = "http") {
    Encodings::ALL
} else {
    Encodings(1 << Encoding::Snappy as u32 | 1 << Encoding::Lz4 as u32)
};

/// Compression of a client's calls; the default is none.
///
/// Configure it per channel, per
/// method or per call. Replies
/// use the encoding of the request; see `Server::compression` for the server
/// side.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
// One machine word, like each other part of a call that is moved.
#[repr(usize)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Requests are not compressed; the server may compress replies.
    Replies,
    /// RFC 1950, named `deflate` in HTTP.
    Deflate,
    /// RFC 1952.
    Gzip,
    /// LZ4 blocks, the fastest to decompress. Native wire only.
    Lz4,
    /// Snappy in its raw format, as other frameworks use it. Native wire and baidu_std only.
    Snappy,
    /// RFC 8878, usually the smallest result, at a high speed for its ratio.
    Zstd,
}

impl Compression {
    const ALL: [Compression; 7] = [
        Compression::None,
        Compression::Replies,
        Compression::Deflate,
        Compression::Gzip,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd,
    ];

    /// Returns the name used in options.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Replies => "replies",
            Compression::Deflate => "deflate",
            Compression::Gzip => "gzip",
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
            Compression::Zstd => "zstd",
        }
    }

    /// Returns whether this build supports the algorithm.
    #[doc(hidden)]
    pub fn is_here(self) -> bool {
        self == Compression::None || self.encoding(|_| true) != Encoding::Identity
    }

    /// Returns whether only the native wire supports the algorithm.
    #[doc(hidden)]
    pub fn is_native(self) -> bool {
        matches!(self, Compression::Lz4 | Compression::Snappy)
    }

    /// Returns the encoding for a call to a server that accepts the encodings in `takes`; plain if it does
    /// not accept this one.
    fn encoding(self, takes: impl Fn(Encoding) -> bool) -> Encoding {
        let wanted: &[Encoding] = match self {
            Compression::None => &[],
            Compression::Replies => {
                &[Encoding::Zstd, Encoding::Lz4, Encoding::Snappy, Encoding::Gzip, Encoding::Deflate]
            }
            Compression::Deflate => &[Encoding::Deflate],
            Compression::Gzip => &[Encoding::Gzip],
            Compression::Lz4 => &[Encoding::Lz4],
            Compression::Snappy => &[Encoding::Snappy],
            Compression::Zstd => &[Encoding::Zstd],
        };
        let known = |encoding: &&Encoding| ENCODINGS.has(**encoding) && takes(**encoding);
        wanted.iter().find(known).copied().unwrap_or(Encoding::Identity)
    }
}

impl FromStr for Compression {
    type Err = Status;

    fn from_str(text: &str) -> Result<Compression> {
        Compression::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let known = "none, replies, deflate, gzip, lz4, snappy or zstd";
            Status::invalid_argument(format!("{text:?} is not a compression; use one of {known}"))
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message in its form on the wire.
#[derive(Clone, Debug)]
pub struct Message {
    pub bytes: Bytes,
    /// Set if the message is compressed with the encoding of its call.
    pub compressed: bool,
    /// Codec of a reply, if the server states it; otherwise the codec of the call.
    pub codec: Option<Codec>,
}

impl From<Bytes> for Message {
    #[inline]
    fn from(bytes: Bytes) -> Message {
        Message { bytes, compressed: false, codec: None }
    }
}

/// Compression of the messages of a call on one side.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Encoding of outgoing messages, and of incoming ones.
    encoding: Encoding,
    received: Encoding,
    /// Compress outgoing messages; incoming ones carry a flag of their own.
    packs: bool,
    serves: bool,
    /// Tracks whether recent messages of this method in this direction became smaller.
    worth: Worth,
    /// Minimum size in bytes; smaller messages are sent uncompressed.
    bytes_min: u32,
    /// Maximum decompressed size of an incoming message in bytes.
    bytes_max: u32,
}

impl Packing {
    /// No compression, for calls that name no encoding.
    pub const OFF: Packing = Packing {
        encoding: Encoding::Identity,
        received: Encoding::Identity,
        packs: false,
        serves: false,
        worth: Worth::NEVER,
        bytes_min: u32::MAX,
        bytes_max: 0,
    };

    /// Settings of a client's call to the method at this address; the server accepts the encodings in
    /// `takes`.
    pub fn of_client(
        compression: Compression,
        method: usize,
        takes: impl Fn(Encoding) -> bool,
        bytes_min: u32,
        bytes_max: u32,
    ) -> Packing {
        let encoding = compression.encoding(takes);
        let packs = compression != Compression::Replies && encoding != Encoding::Identity;
        let worth = Worth::of(method, encoding, false);
        Packing { encoding, received: encoding, packs, serves: false, worth, bytes_min, bytes_max }
    }

    /// Returns the encoding that the call names.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns whether outgoing messages may be compressed.
    #[inline]
    pub(crate) fn packs(&self) -> bool {
        self.packs
    }

    /// Returns whether an outgoing message of this size may be compressed.
    #[inline]
    pub(crate) fn packs_size(&self, bytes: usize) -> bool {
        self.packs && bytes >= self.bytes_min as usize
    }

    /// Prepares an outgoing message: compresses it if compression is on and saves bytes.
    #[inline]
    pub fn pack(&self, message: Bytes) -> Message {
        if self.packs { self.pack_slowly(message) } else { message.into() }
    }

    #[cold]
    fn pack_slowly(&self, message: Bytes) -> Message {
        if message.len() < self.bytes_min as usize || message.is_empty() || !self.worth.tries() {
            return message.into();
        }
        let packed = algorithms::compress(self.encoding, &message);
        let packed = packed.filter(|bytes| worth::pays(message.len(), bytes.len()));
        self.worth.note(packed.is_some());
        // Such a message is already compressed, as images are, or incompressible.
        packed.map_or_else(|| message.into(), |bytes| Message { bytes, compressed: true, codec: None })
    }

    /// Decompresses an incoming message.
    ///
    /// # Errors
    /// `ResourceExhausted` if the decompressed message is too large; `InvalidArgument` for a request and
    /// `Internal` for a reply that cannot be decompressed; `Internal` if the call names no encoding.
    #[inline]
    pub fn unpack(&self, message: Message) -> Result<Bytes> {
        if message.compressed { self.unpack_slowly(message.bytes) } else { Ok(message.bytes) }
    }

    #[cold]
    fn unpack_slowly(&self, message: Bytes) -> Result<Bytes> {
        let what = if self.serves { "a request" } else { "a reply" };
        if self.received == Encoding::Identity {
            let text = format!("{what} is compressed in a call that names no encoding");
            return Err(Status::internal(text).with_origin(self.origin()));
        }
        match algorithms::decompress(self.received, message, self.bytes_max) {
            Ok(message) => Ok(message),
            Err(Unreadable::TooLarge) => Err(Status::resource_exhausted(format!(
                "{what} is, decompressed, over the limit of {} bytes (message_bytes_max of the receiver)",
                self.bytes_max
            ))),
            Err(Unreadable::Broken(why)) => {
                let text = format!("{what} cannot be decompressed as {}: {why}", self.received);
                let status =
                    if self.serves { Status::invalid_argument(text) } else { Status::internal(text) };
                Err(status.with_origin(self.origin()))
            }
        }
    }

    fn origin(&self) -> Origin {
        if self.serves { Origin::Local } else { Origin::Connection }
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use switchboard_wire::{Code, MethodId};

    const ALL: [Compression; 5] =
        [Compression::Deflate, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];

    /// Each test uses methods of its own, because `Worth` keeps statistics per method.
    fn sender(compression: Compression, method: usize) -> Packing {
        Packing::of_client(compression, method, |_| true, 512, 100_000)
    }

    fn receiver(encoding: Encoding, bytes_max: u32) -> Packing {
        Serving::default().packing(encoding, encoding, MethodId(0), 0, bytes_max)
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn messages_survive_and_bombs_do_not() {
        for compression in ALL {
            let sender = sender(compression, 1);
            let packed = sender.pack(vec![7; 100_000].into());
            assert!(packed.compressed && packed.bytes.len() < 5000, "{compression}");
            let receiver = |bytes_max| receiver(sender.encoding(), bytes_max);
            assert_eq!(receiver(100_000).unpack(packed.clone()).unwrap(), [7; 100_000][..]);
            let bomb = receiver(99_999).unpack(packed.clone()).unwrap_err();
            assert_eq!(bomb.code(), Code::ResourceExhausted);
            assert!(bomb.message().contains("limit of 99999 bytes (message_bytes_max"), "{bomb}");
            for cut in [0, 1, packed.bytes.len() - 1] {
                let broken = Message { bytes: packed.bytes.slice(..cut), compressed: true, codec: None };
                let status = receiver(100_000).unpack(broken.clone()).unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument, "{compression} {cut}");
                assert_eq!(sender.unpack(broken).unwrap_err().code(), Code::Internal);
            }
        }
    }

    #[test]
    fn small_messages_and_noise_stay_as_they_are() {
        let noise = noise(5000);
        for compression in ALL {
            let sender = sender(compression, 2);
            assert!(!sender.pack(vec![7; 511].into()).compressed);
            assert!(sender.pack(vec![7; 512].into()).compressed);
            let plain = sender.pack(noise.clone().into());
            assert!(!plain.compressed && plain.bytes == noise, "{compression}");
        }
        let replies = sender(Compression::Replies, 2);
        assert!(!replies.packs() && replies.encoding() == Encoding::Zstd);
        assert!(!replies.pack(vec![7; 5000].into()).compressed);
    }

    #[test]
    fn method_whose_messages_stay_large_is_left_alone_and_tried_again() {
        let (sender, other) = (sender(Compression::Lz4, 3), sender(Compression::Lz4, 4));
        let (noise, zeros) = (Bytes::from(noise(5000)), Bytes::from(vec![0; 5000]));
        for _ in 0..100 {
            assert!(!sender.pack(noise.clone()).compressed);
        }
        assert!(!sender.pack(zeros.clone()).compressed, "nothing is tried for a while");
        assert!(other.pack(zeros.clone()).compressed, "another method");
        let tried = (0..2000).position(|_| sender.pack(zeros.clone()).compressed);
        assert!(tried.is_some(), "it is tried again");
        assert!(sender.pack(zeros).compressed, "and it pays now");
    }

    #[test]
    fn encoding_is_one_that_the_server_takes() {
        let gzip_alone = |encoding| encoding == Encoding::Gzip;
        for (compression, expected) in [
            (Compression::None, Encoding::Identity),
            (Compression::Zstd, Encoding::Identity),
            (Compression::Gzip, Encoding::Gzip),
            (Compression::Replies, Encoding::Gzip),
        ] {
            assert_eq!(compression.encoding(gzip_alone), expected);
            assert_eq!(compression.name().parse::<Compression>().unwrap(), compression);
        }
        assert!("br".parse::<Compression>().unwrap_err().message().contains("zstd"));
        let refused =
            Packing::OFF.unpack(Message { bytes: Bytes::new(), compressed: true, codec: None }).unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
    }

    #[test]
    fn example_of_the_document_is_read() {
        let document = include_str!("../../../docs/native-wire.md");
        let (_, block) = document.split_once("```hex compressed reply\n").expect("the block");
        let (block, _) = block.split_once("```").expect("its end");
        let digits = block.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
        let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
        let message = Message { bytes: Bytes::from(bytes[12..].to_vec()), compressed: true, codec: None };
        let read = receiver(Encoding::Deflate, 100).unpack(message).unwrap();
        assert_eq!(&read[..2], b"\x0A\x40");
        assert_eq!(read[2..], *b"Ada ".repeat(16));
    }
}
