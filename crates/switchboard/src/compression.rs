//! Compressed messages of the native wire: what is made smaller, by whom, and how it is read again.
//!
//! A caller names the [`Compression`] of a call, and both sides may use it from then on; every message says whether
//! it did. Messages are compressed by whoever writes them and decompressed by whoever reads them: in the handler's own
//! time and thread, not in the turn of the connection. In between they stay as they came, so that queues and windows
//! count what was sent.
//!
//! Compressing costs time, so it is not done where it does not pay: below a size, and for methods whose messages did
//! not get smaller lately (`worth.rs`).
//!
//! Snappy and LZ4 are there always; the others are those that HTTP needs anyway, and come with the feature `http`.

mod algorithms;
mod blocks;
mod options;
mod worth;

#[cfg(feature = "http")]
pub(crate) use algorithms::REGISTRY;
pub(crate) use options::{Calling, Serving};

use crate::{Origin, Result, Status};
use algorithms::Unreadable;
use bytes::Bytes;
use std::{fmt, str::FromStr};
use switchboard_wire::{Encoding, Encodings};
use worth::Worth;

/// Smaller messages are sent as they are, unless somebody says otherwise; in bytes.
pub(crate) const BYTES_MIN: u32 = 512;

/// What is read and written here.
pub(crate) const ENCODINGS: Encodings = if cfg!(feature = "http") {
    Encodings::ALL
} else {
    Encodings(1 << Encoding::Snappy as u32 | 1 << Encoding::Lz4 as u32)
};

/// How a client's calls are compressed; nothing is unless it is asked for.
///
/// It is set for a [channel](crate::ChannelBuilder::compression), for a
/// [method](crate::ChannelBuilder::method_compression) or for one [call](crate::UnaryCall::compression). Replies follow
/// the request; see [`Server::compression`](crate::Server::compression) for the other side.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
// A word, as every part of a call that is moved.
#[repr(usize)]
pub enum Compression {
    /// Nothing is compressed.
    #[default]
    None,
    /// Requests are not, replies may be, as the server likes.
    Replies,
    /// RFC 1950, what HTTP calls `deflate`.
    Deflate,
    /// RFC 1952.
    Gzip,
    /// LZ4 in blocks: the fastest to read. On the native wire alone.
    Lz4,
    /// Snappy in its raw format, as other frameworks have it. On the native wire and baidu_std alone.
    Snappy,
    /// RFC 8878: mostly the smallest, and fast for that.
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

    /// The name in options.
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

    /// Whether this build has it.
    pub(crate) fn is_here(self) -> bool {
        self == Compression::None || self.encoding(|_| true) != Encoding::Identity
    }

    /// Whether only the native wire has it.
    #[cfg(feature = "http")]
    pub(crate) fn is_native(self) -> bool {
        matches!(self, Compression::Lz4 | Compression::Snappy)
    }

    /// The encoding of a call whose server takes what `takes` says; plain if it does not take this.
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
            let known = "none, replies, deflate, gzip, lz4, snappy and zstd";
            Status::invalid_argument(format!("{text:?} is no compression; known are {known}"))
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message as it travels.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Bytes,
    /// With the encoding of its call.
    pub(crate) compressed: bool,
}

impl From<Bytes> for Message {
    #[inline]
    fn from(bytes: Bytes) -> Message {
        Message { bytes, compressed: false }
    }
}

/// What one side does with the messages of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    encoding: Encoding,
    /// Messages that go out are compressed; those that come in say it themselves.
    packs: bool,
    serves: bool,
    /// Whether messages of this method in this direction got smaller lately.
    worth: Worth,
    /// Smaller messages go out as they are.
    bytes_min: u32,
    /// Largest message that comes in, decompressed.
    bytes_max: u32,
}

impl Packing {
    /// Of calls that name no encoding.
    pub(crate) const OFF: Packing = Packing {
        encoding: Encoding::Identity,
        packs: false,
        serves: false,
        worth: Worth::NEVER,
        bytes_min: u32::MAX,
        bytes_max: 0,
    };

    /// At a client, of a call of the method at this address to a server that takes what `takes` says.
    pub(crate) fn of_client(
        compression: Compression,
        method: usize,
        takes: impl Fn(Encoding) -> bool,
        bytes_min: u32,
        bytes_max: u32,
    ) -> Packing {
        let encoding = compression.encoding(takes);
        let packs = compression != Compression::Replies && encoding != Encoding::Identity;
        let worth = Worth::of(method, encoding, false);
        Packing { encoding, packs, serves: false, worth, bytes_min, bytes_max }
    }

    /// What the call names.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether any message that goes out may be compressed.
    #[inline]
    pub(crate) fn packs(&self) -> bool {
        self.packs
    }

    /// A message on its way out: compressed if that is wanted and pays.
    #[inline]
    pub(crate) fn pack(&self, message: Bytes) -> Message {
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
        // What does not pay was compressed already, as pictures are, or looks like noise.
        packed.map_or_else(|| message.into(), |bytes| Message { bytes, compressed: true })
    }

    /// A message that came in.
    ///
    /// # Errors
    /// `ResourceExhausted` for one that is too large decompressed, `InvalidArgument` for a request and `Internal` for a
    /// reply that is not so compressed, `Internal` when the call named no encoding.
    #[inline]
    pub(crate) fn unpack(&self, message: Message) -> Result<Bytes> {
        if message.compressed { self.unpack_slowly(message.bytes) } else { Ok(message.bytes) }
    }

    #[cold]
    fn unpack_slowly(&self, message: Bytes) -> Result<Bytes> {
        let what = if self.serves { "a request" } else { "a reply" };
        if self.encoding == Encoding::Identity {
            let text = format!("{what} is compressed in a call that names no encoding");
            return Err(Status::internal(text).with_origin(self.origin()));
        }
        match algorithms::decompress(self.encoding, message, self.bytes_max) {
            Ok(message) => Ok(message),
            Err(Unreadable::TooLarge) => Err(Status::resource_exhausted(format!(
                "{what} is, decompressed, over the limit of {} bytes (message_bytes_max of the receiver)",
                self.bytes_max
            ))),
            Err(Unreadable::Broken(why)) => {
                let text = format!("{what} cannot be decompressed as {}: {why}", self.encoding);
                let status =
                    if self.serves { Status::invalid_argument(text) } else { Status::internal(text) };
                Err(status.with_origin(self.origin()))
            }
        }
    }

    fn origin(&self) -> Origin {
        if self.serves { Origin::Here } else { Origin::Path }
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::Code;
    use switchboard_wire::MethodId;

    const ALL: [Compression; 5] =
        [Compression::Deflate, Compression::Gzip, Compression::Lz4, Compression::Snappy, Compression::Zstd];

    /// Each test has methods of its own: what pays is remembered.
    fn sender(compression: Compression, method: usize) -> Packing {
        Packing::of_client(compression, method, |_| true, 512, 100_000)
    }

    fn receiver(encoding: Encoding, bytes_max: u32) -> Packing {
        Serving::default().packing(encoding, MethodId(0), 0, bytes_max)
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
                let broken = Message { bytes: packed.bytes.slice(..cut), compressed: true };
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
        let refused = Packing::OFF.unpack(Message { bytes: Bytes::new(), compressed: true }).unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
    }

    #[test]
    fn example_of_the_document_is_read() {
        let document = include_str!("../../../docs/native-wire.md");
        let (_, block) = document.split_once("```hex compressed reply\n").expect("the block");
        let (block, _) = block.split_once("```").expect("its end");
        let digits = block.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
        let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
        let message = Message { bytes: Bytes::from(bytes[12..].to_vec()), compressed: true };
        let read = receiver(Encoding::Deflate, 100).unpack(message).unwrap();
        assert_eq!(&read[..2], b"\x0A\x40");
        assert_eq!(read[2..], *b"Ada ".repeat(16));
    }
}
