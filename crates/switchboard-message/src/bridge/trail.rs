//! Headers of copies: where an entry has been, and its position on the side that it was copied from.

use crate::Position;
use switchboard_core::Result;
use switchboard_wire::{Metadata, Status};

/// Names of the sides where an entry has been, with commas between them; the last one is where it was copied from.
const TRAIL: &str = "switchboard-trail";
/// Position on that side: epoch and offset in hexadecimal digits, with a colon between them.
const POSITION: &str = "switchboard-position";
/// Sides of one trail: an entry that has been on more goes no further.
const SIDES_MAX: usize = 16;
/// Headers of one copy: records of engines have no more.
const HEADERS_MAX: usize = 128;
/// Bytes of one name.
const NAME_BYTES_MAX: usize = 64;

/// Checks the name of a side.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
        let text = format!(
            "\"{shown}\" is not the name of a side of a bridge; use 1 to {NAME_BYTES_MAX} letters, digits, ., - and _"
        );
        return Err(Status::invalid_argument(text));
    }
    Ok(())
}

/// Returns whether an entry that is on one side has been there before, or on the other side.
pub(super) fn has_been(headers: &Metadata, from: &str, to: &str) -> bool {
    let mut sides = headers.text(TRAIL).unwrap_or_default().split(',');
    headers.text(TRAIL).is_some_and(|trail| trail.split(',').count() >= SIDES_MAX)
        || sides.any(|side| side == from || side == to)
}

/// Adds the headers of a copy from this side, unless it has more than engines store then.
pub(super) fn add(headers: &mut Metadata, from: &str, position: Position) -> Result<()> {
    let trail = match headers.text(TRAIL) {
        Some(trail) => format!("{trail},{from}"),
        None => from.to_owned(),
    };
    let invalid = |error| Status::internal(format!("headers of a bridge: {error}"));
    headers.remove(TRAIL);
    headers.remove(POSITION);
    headers.insert(TRAIL, trail).map_err(invalid)?;
    let Position { epoch, offset } = position;
    headers.insert(POSITION, format!("{epoch:x}:{offset:x}")).map_err(invalid)?;
    if headers.len() > HEADERS_MAX {
        let text = format!(
            "the copy has {} headers, with those of the bridge; the limit is {HEADERS_MAX}; publish fewer",
            headers.len()
        );
        return Err(Status::invalid_argument(text));
    }
    Ok(())
}

/// Returns the position of a copy from this side.
pub(super) fn position(headers: &Metadata, from: &str) -> Option<Position> {
    if headers.text(TRAIL)?.rsplit(',').next() != Some(from) {
        return None;
    }
    let (epoch, offset) = headers.text(POSITION)?.split_once(':')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Position { epoch: number(epoch)?, offset: number(offset)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trails_grow_and_end() {
        let mut headers = Metadata::new();
        headers.insert("other", "kept").unwrap();
        assert!(!has_been(&headers, "a", "b"));
        add(&mut headers, "a", Position { epoch: 255, offset: 16 }).unwrap();
        assert_eq!((headers.text(TRAIL), headers.text(POSITION)), (Some("a"), Some("ff:10")));
        assert!(
            has_been(&headers, "b", "a") && has_been(&headers, "a", "c") && !has_been(&headers, "b", "c")
        );
        assert_eq!(position(&headers, "a"), Some(Position { epoch: 255, offset: 16 }));
        assert_eq!(position(&headers, "b"), None);
        for side in 0..SIDES_MAX {
            add(&mut headers, &format!("s{side}"), Position::default()).unwrap();
        }
        assert!(has_been(&headers, "x", "y"));
        assert_eq!((headers.len(), headers.text("other")), (3, Some("kept")));
    }

    #[test]
    fn damaged_headers_have_no_position() {
        for (trail, at) in [("a", "x:1"), ("a", "1"), ("b", "1:1"), ("", "1:1")] {
            let mut headers = Metadata::new();
            headers.insert(TRAIL, trail).unwrap();
            headers.insert(POSITION, at).unwrap();
            assert_eq!(position(&headers, "a"), None, "{trail} {at}");
        }
    }

    #[test]
    fn names_are_plain() {
        assert!(check_name("eu-1.a_b").is_ok());
        for name in ["", "a b", "a,b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
