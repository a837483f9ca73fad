//! Reads the fields of a protobuf message in the order of their numbers, in which encoders write them; for generated
//! code.
//!
//! A generated view compares the next tag with the expected one, field by field, and reads the value in place. At the
//! first field that is not as expected (another order, an unknown field, another wire type, a truncated value), it
//! leaves the remaining fields to [`rest`], which reads them by the loop of buffa. The fast path itself never fails
//! except for text that is not UTF-8, so errors are those of buffa.
//!
//! Text is checked once for all fields of a message, by [`Texts`]: a check of 50 bytes costs almost as much as one of
//! 500.

use super::proto::take_tag;
use buffa::encoding::Tag;
use buffa::{DecodeContext, DecodeError, MessageView, encoding};

/// Longest text that is checked together with others, in bytes. For longer ones the copy costs more than a check.
const JOINED_MAX: usize = 256;

/// Returns the bytes after the tag, if it is next.
#[inline(always)]
pub fn after_tag<const N: usize>(cur: &[u8], tag: [u8; N]) -> Option<&[u8]> {
    match cur.split_first_chunk::<N>() {
        Some((next, rest)) if *next == tag => Some(rest),
        _ => None,
    }
}

/// Returns the next tag and the bytes after it, if it is one of the field `number`, of any wire type.
#[inline(always)]
pub fn field(cur: &[u8], number: u32) -> Option<(Tag, &[u8])> {
    let mut rest = cur;
    let tag = take_tag(&mut rest).ok()?;
    // From the expected number, a constant: the compiler then keeps only the code of this field.
    (tag.field_number() == number).then(|| (Tag::new(number, tag.wire_type()), rest))
}

/// Reads the remaining fields, whatever their order.
///
/// # Errors
/// Returns the errors of [`MessageView::merge_into_view`].
#[cold]
pub fn rest<'a, V: MessageView<'a>>(
    view: &mut V,
    mut cur: &'a [u8],
    ctx: DecodeContext<'_>,
) -> Result<(), DecodeError> {
    while !cur.is_empty() {
        let before_tag = cur;
        let tag = take_tag(&mut cur)?;
        cur = view.merge_view_field(tag, cur, before_tag, ctx)?;
    }
    Ok(())
}

/// Reads a number of variable length and returns it with the bytes after it; `None` if it is truncated or too long.
#[inline(always)]
fn varint(cur: &[u8]) -> Option<(u64, &[u8])> {
    match *cur {
        [one, ref rest @ ..] if one < 0x80 => Some((u64::from(one), rest)),
        [one, two, ref rest @ ..] if two < 0x80 => Some((u64::from(one & 0x7f) | u64::from(two) << 7, rest)),
        [one, two, three, ref rest @ ..] if three < 0x80 => {
            Some((u64::from(one & 0x7f) | u64::from(two & 0x7f) << 7 | u64::from(three) << 14, rest))
        }
        _ => long_varint(cur),
    }
}

#[inline(never)]
fn long_varint(mut cur: &[u8]) -> Option<(u64, &[u8])> {
    let number = encoding::decode_varint(&mut cur).ok()?;
    Some((number, cur))
}

/// Reads a field with a length and returns its bytes and those after it.
#[inline(always)]
pub fn bytes(cur: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = varint(cur)?;
    rest.split_at_checked(usize::try_from(len).ok()?)
}

/// Defines readers of scalars, named as the types of protobuf. Each returns the value and the bytes after it.
macro_rules! scalars {
    ($($name:ident: $type:ty = $read:ident, $from:expr;)*) => {
        $(
            #[doc = concat!("Reads a field of type `", stringify!($name), "`.")]
            #[inline(always)]
            pub fn $name(cur: &[u8]) -> Option<($type, &[u8])> {
                let (read, rest) = $read(cur)?;
                Some(($from(read), rest))
            }
        )*
    };
}

// Numbers of 32 bits are read as if they had 64, and truncated: the specification requires it.
scalars! {
    bool: bool = varint, |number| number != 0;
    int32: i32 = varint, |number| number as i32;
    int64: i64 = varint, |number| number as i64;
    uint32: u32 = varint, |number| number as u32;
    uint64: u64 = varint, |number| number;
    sint32: i32 = varint, |number: u64| (number as u32 >> 1) as i32 ^ -((number & 1) as i32);
    sint64: i64 = varint, |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
    fixed32: u32 = chunk, u32::from_le_bytes;
    sfixed32: i32 = chunk, i32::from_le_bytes;
    float: f32 = chunk, f32::from_le_bytes;
    fixed64: u64 = chunk, u64::from_le_bytes;
    sfixed64: i64 = chunk, i64::from_le_bytes;
    double: f64 = chunk, f64::from_le_bytes;
}

#[inline(always)]
fn chunk<const N: usize>(cur: &[u8]) -> Option<([u8; N], &[u8])> {
    cur.split_first_chunk().map(|(chunk, rest)| (*chunk, rest))
}

/// Text fields of a message that are not checked yet: `N` fields, of which up to `BYTES` bytes are checked at once.
///
/// They are copied one after the other, with a zero byte between them. A sequence that is cut off before the zero is
/// invalid, and so is a continuation after it, so the copy is valid exactly if each text is.
pub struct Texts<'a, const N: usize, const BYTES: usize> {
    texts: [Option<&'a [u8]>; N],
    joined: [u8; BYTES],
    len: usize,
}

impl<'a, const N: usize, const BYTES: usize> Texts<'a, N, BYTES> {
    /// Creates an empty set.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "generated code only")]
    pub fn new() -> Self {
        Texts { texts: [None; N], joined: [0; BYTES], len: 0 }
    }

    /// Adds the text of field `at`, which has none yet. Texts that were added before may be checked now.
    ///
    /// # Errors
    /// `InvalidUtf8` if one of the texts so far is known to be invalid.
    #[inline(always)]
    pub fn push(&mut self, at: usize, text: &'a [u8]) -> Result<(), DecodeError> {
        let end = self.len + text.len();
        if text.len() > JOINED_MAX || end >= BYTES {
            self.push_long(text)?;
        } else {
            self.joined[self.len..end].copy_from_slice(text);
            self.joined[end] = 0;
            self.len = end + 1;
        }
        // Not before: a text that was refused must not be returned.
        self.texts[at] = Some(text);
        Ok(())
    }

    /// Checks the text alone, after those before it.
    #[inline(never)]
    fn push_long(&mut self, text: &[u8]) -> Result<(), DecodeError> {
        check(&self.joined[..self.len])?;
        self.len = 0;
        check(text)
    }

    /// Returns the error to report for an error in a field after the texts: that of an invalid text comes first.
    #[cold]
    pub fn error(&self, later: DecodeError) -> DecodeError {
        check(&self.joined[..self.len]).err().unwrap_or(later)
    }

    /// Returns the texts of all fields.
    ///
    /// # Errors
    /// `InvalidUtf8` if one of them is invalid.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the texts were checked; checking each again is what this type avoids")]
    pub fn check(self) -> Result<[Option<&'a str>; N], DecodeError> {
        check(&self.joined[..self.len])?;
        // SAFETY: each text that `push` stored was either checked alone, or copied into `joined` and checked there: in
        // `push_long` before `len` was reset, or above. `joined` has a zero byte after each text, which is a whole
        // character and part of no other: valid joined text consists of valid texts.
        Ok(self.texts.map(|text| text.map(|text| unsafe { std::str::from_utf8_unchecked(text) })))
    }
}

#[inline(always)]
fn check(text: &[u8]) -> Result<(), DecodeError> {
    match simdutf8::basic::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(DecodeError::InvalidUtf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_read_as_the_library_reads_them() {
        use buffa::types::*;
        let last = [0, 1, 2, 0x7f, 0x80, 0xff];
        let ends = last.iter().flat_map(|one| last.map(|two| [*one, two]));
        let long = |len: usize| ends.clone().map(move |end| [&vec![0x9f; len][..], &end].concat());
        for input in (0..12).flat_map(long).chain([vec![], vec![0x80]]) {
            macro_rules! same {
                ($($name:ident $read:ident)*) => { $(
                    let ours = $name(&input).map(|(value, rest)| (format!("{value:?}"), rest));
                    let mut rest = &input[..];
                    let theirs = $read(&mut rest).ok().map(|value| (format!("{value:?}"), rest));
                    assert_eq!(ours, theirs, "{} of {input:02x?}", stringify!($name));
                )* };
            }
            same! {
                bool decode_bool int32 decode_int32 int64 decode_int64 uint32 decode_uint32 uint64 decode_uint64
                sint32 decode_sint32 sint64 decode_sint64 fixed32 decode_fixed32 sfixed32 decode_sfixed32
                float decode_float fixed64 decode_fixed64 sfixed64 decode_sfixed64 double decode_double
                bytes borrow_bytes
            }
        }
    }

    /// Checks texts in one set against a check of each.
    fn joined<const N: usize, const BYTES: usize>(texts: [&[u8]; N]) {
        let mut set = Texts::<N, BYTES>::new();
        let pushed = texts.iter().enumerate().try_for_each(|(at, text)| set.push(at, text));
        let ours = pushed.and_then(|()| set.check()).ok();
        let each: Option<Vec<Option<&str>>> =
            texts.iter().map(|text| std::str::from_utf8(text).ok().map(Some)).collect();
        assert_eq!(ours.map(Vec::from), each, "{texts:02x?}");
    }

    #[test]
    fn joined_texts_are_valid_exactly_if_each_is() {
        let whole = "a\u{e9}\u{4e00}\u{1f600}".as_bytes();
        // Each sequence is cut at each byte, and the rest is in the next text.
        for cut in 0..=whole.len() {
            let (before, after) = whole.split_at(cut);
            joined::<2, 64>([before, after]);
            joined::<3, 64>([before, b"", after]);
            joined::<3, 64>([after, before, whole]);
            // Some are checked before the others, since there is no more room.
            joined::<4, 16>([whole, before, after, whole]);
        }
        for byte in 0..=u8::MAX {
            joined::<3, 64>([b"a", &[byte], b"b"]);
            joined::<3, 64>([&[0xe4, byte], &[byte, 0xb8], &[byte]]);
        }
    }

    #[test]
    fn long_texts_are_checked_alone() {
        for len in [0, 1, JOINED_MAX - 1, JOINED_MAX, JOINED_MAX + 1, 5000] {
            let valid = "\u{4e00}".repeat(len.div_ceil(3)).into_bytes();
            let cut = &valid[..valid.len().saturating_sub(1)];
            joined::<3, 1024>([&valid, b"short", &valid]);
            joined::<3, 1024>([&valid, cut, &valid]);
            joined::<3, 1024>([cut, b"short", b"x"]);
            joined::<3, 1024>([b"\xff", &valid, b"x"]);
        }
    }

    #[test]
    fn a_refused_text_is_never_returned() {
        let invalid = [0xff; JOINED_MAX + 1];
        let mut texts = Texts::<2, 64>::new();
        texts.push(0, b"valid").unwrap();
        assert!(texts.push(1, &invalid).is_err());
        assert_eq!(texts.check(), Ok([Some("valid"), None]));
        // An invalid text before a long one is still known.
        let mut texts = Texts::<2, 64>::new();
        texts.push(0, b"\xff").unwrap();
        assert!(texts.push(1, &[b'a'; JOINED_MAX + 1]).is_err());
        assert!(texts.check().is_err());
    }

    #[test]
    fn an_invalid_text_is_reported_before_a_later_error() {
        let mut texts = Texts::<2, 64>::new();
        texts.push(0, b"\xff").unwrap();
        assert_eq!(texts.error(DecodeError::UnexpectedEof), DecodeError::InvalidUtf8);
        let mut texts = Texts::<2, 64>::new();
        texts.push(0, b"valid").unwrap();
        assert_eq!(texts.error(DecodeError::UnexpectedEof), DecodeError::UnexpectedEof);
    }
}
