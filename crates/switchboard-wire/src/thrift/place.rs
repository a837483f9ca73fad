//! The field that a byte belongs to, for errors: a reader knows no more than where it stopped.

use super::{Reader, Type};
use bytes::Bytes;
use std::fmt::Write;

/// The numbers of the fields around the byte at which a struct could not be read further, the outermost first: `3.1`.
/// Empty if no field had begun. Lists and maps count as the field that they are.
pub fn field_at(whole: &Bytes, at: usize) -> String {
    let (mut path, mut begin) = (String::new(), 0);
    while let Some((kind, id, value)) = field_of(whole, begin, at) {
        let dot = if path.is_empty() { "" } else { "." };
        // Writing to a `String` does not fail.
        let _ = write!(path, "{dot}{id}");
        if kind != Type::STRUCT {
            break;
        }
        begin = value;
    }
    path
}

/// Type and number of the field of the struct at `begin` in which a reader stopped at `at`, and where its value begins.
fn field_of(whole: &Bytes, begin: usize, at: usize) -> Option<(Type, i16, usize)> {
    let rest = whole.slice(begin..);
    let mut input = Reader::new(&rest);
    let place = |input: &Reader<'_>| whole.len() - input.left();
    let mut last = None;
    while let Ok(Some((kind, id))) = input.field() {
        let value = place(&input);
        if value > at {
            break;
        }
        let is_whole = input.skip(kind).is_ok();
        if !is_whole || place(&input) > at {
            return Some((kind, id, value));
        }
        // A value may be wrong as a whole, such as a text that is no UTF-8: its reader stops behind it.
        last = (place(&input) == at).then_some((kind, id, value));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::{
        super::value::{put_field, put_field_head, put_stop},
        *,
    };

    #[test]
    fn the_field_of_a_byte_is_found() {
        let mut inner = Vec::new();
        put_field(&mut inner, 1, &"abc".to_owned());
        put_stop(&mut inner);
        let mut whole = Vec::new();
        put_field(&mut whole, 2, &7_i32);
        put_field_head(&mut whole, Type::STRUCT, 5);
        whole.extend_from_slice(&inner);
        put_stop(&mut whole);
        let whole = Bytes::from(whole);
        // Behind a value at 20, behind the inner struct at 21.
        for (at, field) in [(0, ""), (5, "2"), (15, "5.1"), (20, "5.1"), (21, "5")] {
            assert_eq!(field_at(&whole, at), field, "byte {at}");
        }
        let cut = whole.slice(..16);
        assert_eq!(field_at(&cut, 13), "5.1");
        assert_eq!(field_at(&Bytes::new(), 0), "");
    }
}
