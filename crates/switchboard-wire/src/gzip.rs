//! Gzip, as used in the frames of other frameworks.

use flate2::bufread::GzDecoder;
use std::io::Read;

/// Largest number of members of a gzip stream. A member may be empty, and costs its reader much more than its 20 bytes.
const MEMBERS_MAX: usize = 64;

/// Decompresses a whole gzip stream; stops after `bytes_max` plus one bytes.
///
/// # Errors
/// Returns the reason why the stream is invalid.
pub(crate) fn decompress(stream: &[u8], bytes_max: usize) -> Result<Vec<u8>, String> {
    let (mut rest, mut plain) = (stream, Vec::new());
    for _ in 0..MEMBERS_MAX {
        let mut member = GzDecoder::new(rest);
        let left = bytes_max + 1 - plain.len();
        member.by_ref().take(left as u64).read_to_end(&mut plain).map_err(|why| why.to_string())?;
        rest = member.into_inner();
        if plain.len() > bytes_max || rest.is_empty() {
            return Ok(plain);
        }
    }
    Err(format!("it has more than {MEMBERS_MAX} members"))
}

/// Decompresses the first bytes of a gzip stream that may be truncated: at most `bytes_max` bytes of its first member.
pub(crate) fn start(stream: &[u8], bytes_max: usize) -> Vec<u8> {
    crate::work::add(stream.len());
    let mut plain = Vec::new();
    // Reading ends in an error if the stream is truncated.
    let _ = GzDecoder::new(stream).take(bytes_max as u64).read_to_end(&mut plain);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn member(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_are_joined_up_to_a_limit() {
        let stream = [member(b"ab"), member(b""), member(b"c")].concat();
        assert_eq!(decompress(&stream, 100).unwrap(), b"abc");
        assert_eq!(decompress(&stream, 3).unwrap(), b"abc");
        assert_eq!(decompress(&stream, 2).unwrap(), b"abc");
        assert_eq!(decompress(&member(&[7; 100_000]), 9).unwrap().len(), 10);
        assert_eq!(decompress(&member(b"x").repeat(MEMBERS_MAX), 100).unwrap().len(), MEMBERS_MAX);
        assert!(decompress(&member(b"").repeat(MEMBERS_MAX + 1), 100).unwrap_err().contains("members"));
        for broken in [&stream[..stream.len() - 1], &[&stream[..], b"x"].concat(), b""] {
            assert!(decompress(broken, 100).is_err());
        }
        assert_eq!(start(&stream[..stream.len() / 2], 2), b"ab");
    }
}
