//! Compressed messages of the native wire: what is made smaller, by whom, and how it is read again.
//!
//! A caller names the [`Compression`] of a call, and both sides may use it from then on; every message says whether
//! it did. Messages are compressed by whoever writes them and decompressed by whoever reads them: in the handler's own
//! time and thread, not in the turn of the connection. In between they stay as they came, so that queues and windows
//! count what was sent.
//!
//! The algorithms are those that HTTP needs anyway; without the feature `http` there are none.

mod options;

pub(crate) use options::{Calling, Serving};

use crate::{Origin, Result, Status};
use bytes::Bytes;
#[cfg(feature = "http")]
use connectrpc::{CompressionRegistry, ErrorCode};
#[cfg(feature = "http")]
use std::sync::LazyLock;
use std::{fmt, str::FromStr};
use switchboard_wire::{Encoding, Encodings};

/// Smaller messages are sent as they are, unless somebody says otherwise; in bytes.
pub(crate) const BYTES_MIN: u32 = 512;

/// What is read and written here.
pub(crate) const ENCODINGS: Encodings = if cfg!(feature = "http") { Encodings::ALL } else { Encodings::NONE };

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
    /// RFC 8878: the fastest, and mostly the smallest.
    Zstd,
}

impl Compression {
    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Replies => "replies",
            Compression::Deflate => "deflate",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }

    /// The encoding of a call whose server takes what `takes` says; plain if it does not take this.
    fn encoding(self, takes: impl Fn(Encoding) -> bool) -> Encoding {
        let wanted: &[Encoding] = match self {
            Compression::None => &[],
            Compression::Replies => &[Encoding::Zstd, Encoding::Gzip, Encoding::Deflate],
            Compression::Deflate => &[Encoding::Deflate],
            Compression::Gzip => &[Encoding::Gzip],
            Compression::Zstd => &[Encoding::Zstd],
        };
        let known = |encoding: &&Encoding| ENCODINGS.has(**encoding) && takes(**encoding);
        wanted.iter().find(known).copied().unwrap_or(Encoding::Identity)
    }
}

impl FromStr for Compression {
    type Err = Status;

    fn from_str(text: &str) -> Result<Compression> {
        use Compression::{Deflate, Gzip, None, Replies, Zstd};
        [None, Replies, Deflate, Gzip, Zstd].into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let known = "none, replies, deflate, gzip and zstd";
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
        bytes_min: u32::MAX,
        bytes_max: 0,
    };

    /// At a client, of a call to a server that takes what `takes` says.
    pub(crate) fn of_client(
        compression: Compression,
        takes: impl Fn(Encoding) -> bool,
        bytes_min: u32,
        bytes_max: u32,
    ) -> Packing {
        let encoding = compression.encoding(takes);
        let packs = compression != Compression::Replies && encoding != Encoding::Identity;
        Packing { encoding, packs, serves: false, bytes_min, bytes_max }
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

    /// A message on its way out: compressed if that is wanted and makes it smaller.
    #[inline]
    pub(crate) fn pack(&self, message: Bytes) -> Message {
        if self.packs { self.pack_slowly(message) } else { message.into() }
    }

    #[cold]
    fn pack_slowly(&self, message: Bytes) -> Message {
        if message.len() < self.bytes_min as usize {
            return message.into();
        }
        match compress(self.encoding, &message) {
            Some(bytes) if bytes.len() < message.len() => Message { bytes, compressed: true },
            // It was compressed already, as pictures are, or looks like noise.
            _ => message.into(),
        }
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
        match decompress(self.encoding, message, self.bytes_max) {
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

enum Unreadable {
    Broken(String),
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "nothing is decompressed without it"))]
    TooLarge,
}

/// The compressions of HTTP; the providers keep what they work with for the next message.
#[cfg(feature = "http")]
pub(crate) static REGISTRY: LazyLock<CompressionRegistry> =
    LazyLock::new(|| CompressionRegistry::default().register(crate::http::deflate::Deflate));

/// None for what cannot be compressed.
#[cfg(feature = "http")]
fn compress(encoding: Encoding, message: &[u8]) -> Option<Bytes> {
    REGISTRY.compress(encoding.name(), message).ok()
}

#[cfg(feature = "http")]
fn decompress(encoding: Encoding, message: Bytes, bytes_max: u32) -> Result<Bytes, Unreadable> {
    if message.is_empty() {
        return Err(Unreadable::Broken("it is empty".into()));
    }
    REGISTRY.decompress_with_limit(encoding.name(), message, bytes_max as usize).map_err(|error| match error
        .code
    {
        ErrorCode::ResourceExhausted => Unreadable::TooLarge,
        _ => Unreadable::Broken(error.message.unwrap_or_default()),
    })
}

#[cfg(not(feature = "http"))]
fn compress(_: Encoding, _: &[u8]) -> Option<Bytes> {
    None
}

#[cfg(not(feature = "http"))]
fn decompress(_: Encoding, _: Bytes, _: u32) -> Result<Bytes, Unreadable> {
    Err(Unreadable::Broken("the feature http is off".into()))
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::Code;
    use switchboard_wire::MethodId;

    const ALL: [Compression; 3] = [Compression::Deflate, Compression::Gzip, Compression::Zstd];

    fn sender(compression: Compression) -> Packing {
        Packing::of_client(compression, |_| true, 512, 100_000)
    }

    fn receiver(encoding: Encoding, bytes_max: u32) -> Packing {
        Serving::default().packing(encoding, MethodId(0), bytes_max)
    }

    #[test]
    fn messages_survive_and_bombs_do_not() {
        for compression in ALL {
            let sender = sender(compression);
            let packed = sender.pack(vec![7; 100_000].into());
            assert!(packed.compressed && packed.bytes.len() < 1000, "{compression}");
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
        let noise: Vec<u8> = {
            let mut state = 1u64;
            let next = |state: &mut u64| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (*state >> 56) as u8
            };
            (0..5000).map(|_| next(&mut state)).collect()
        };
        for compression in ALL {
            let sender = sender(compression);
            assert!(!sender.pack(vec![7; 511].into()).compressed);
            assert!(sender.pack(vec![7; 512].into()).compressed);
            let plain = sender.pack(noise.clone().into());
            assert!(!plain.compressed && plain.bytes == noise, "{compression}");
        }
        let replies = sender(Compression::Replies);
        assert!(!replies.packs() && replies.encoding() == Encoding::Zstd);
        assert!(!replies.pack(vec![7; 5000].into()).compressed);
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
