//! Finds the end of an unframed struct while its bytes arrive.

use super::{
    DEPTH_MAX, Encoded, Malformed, Type,
    compact::{binary_type, varint},
};

/// Finds the end of one struct. It continues where it stopped for lack of bytes, so that a struct that arrives byte by
/// byte is scanned once.
#[derive(Debug)]
pub struct Scanner {
    encoded: Encoded,
    /// Open structs and containers, the innermost last.
    levels: Vec<Level>,
    /// Bytes that were scanned or can be skipped; may be beyond the received bytes.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Level {
    /// Fields follow.
    Struct,
    /// This many elements follow, alternating between the two types.
    Elements { left: u64, kinds: [Type; 2] },
    /// A value of this type follows.
    Value(Type),
}

impl Scanner {
    /// Creates a scanner at the beginning of a struct.
    pub fn new(encoded: Encoded) -> Scanner {
        Scanner { encoded, levels: vec![Level::Struct], at: 0 }
    }

    /// Returns the length of the struct at the front of `bytes`, which must begin with the bytes of every call before;
    /// `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a struct, and for a struct of more than `max` bytes.
    pub fn scan(&mut self, bytes: &[u8], max: usize) -> Result<Option<usize>, Malformed> {
        while let Some(level) = self.levels.last().copied() {
            crate::work::add(1);
            if self.at > max {
                return Err(Malformed(
                    format!("a message of more than {max} bytes (message_bytes_max)").into(),
                ));
            }
            let Some(rest) = bytes.get(self.at..) else { return Ok(None) };
            let stepped = match (level, self.encoded) {
                (Level::Struct, Encoded::Binary) => self.binary_field(rest),
                (Level::Struct, Encoded::Compact) => self.compact_field(rest)?,
                (Level::Elements { left, kinds }, _) => {
                    self.element(left, kinds);
                    Some(0)
                }
                (Level::Value(kind), Encoded::Binary) => self.binary_value(kind, rest)?,
                (Level::Value(kind), Encoded::Compact) => self.compact_value(kind, rest)?,
            };
            let Some(step) = stepped else { return Ok(None) };
            self.at += step;
            if self.levels.len() > DEPTH_MAX + 1 {
                return Err(Malformed::deep());
            }
        }
        Ok((self.at <= bytes.len()).then_some(self.at))
    }

    fn element(&mut self, left: u64, kinds: [Type; 2]) {
        self.levels.pop();
        if left > 0 {
            self.levels.push(Level::Elements { left: left - 1, kinds: [kinds[1], kinds[0]] });
            self.levels.push(Level::Value(kinds[0]));
        }
    }

    fn binary_field(&mut self, rest: &[u8]) -> Option<usize> {
        let kind = *rest.first()?;
        if kind == 0 {
            self.levels.pop();
            return Some(1);
        }
        self.levels.push(Level::Value(Type(kind)));
        Some(3)
    }

    fn compact_field(&mut self, rest: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(head) = rest.first().copied() else { return Ok(None) };
        if head == 0 {
            self.levels.pop();
            return Ok(Some(1));
        }
        let len = match head >> 4 {
            0 => match varint(&rest[1..])? {
                None => return Ok(None),
                Some((_, len)) => 1 + len,
            },
            _ => 1,
        };
        let kind = binary_type(head & 0x0F)?;
        if kind != Type::BOOL {
            self.levels.push(Level::Value(kind));
        }
        Ok(Some(len))
    }

    fn binary_value(&mut self, kind: Type, rest: &[u8]) -> Result<Option<usize>, Malformed> {
        self.levels.pop();
        if let Some(len) = kind.fixed() {
            return Ok(Some(len));
        }
        let head = match kind {
            Type::STRUCT => {
                self.levels.push(Level::Struct);
                return Ok(Some(0));
            }
            Type::STRING => 4,
            Type::LIST | Type::SET => 5,
            Type::MAP => 6,
            Type(other) => return Err(Malformed::no_type(other)),
        };
        let Some(bytes) = rest.get(..head) else {
            self.levels.push(Level::Value(kind));
            return Ok(None);
        };
        let size = i32::from_be_bytes([bytes[head - 4], bytes[head - 3], bytes[head - 2], bytes[head - 1]]);
        let size = u32::try_from(size).map_err(|_| Malformed::size(size))?;
        if kind == Type::STRING {
            return Ok(Some(4 + size as usize));
        }
        let (kinds, each) = if kind == Type::MAP { ([bytes[0], bytes[1]], 2) } else { ([bytes[0]; 2], 1) };
        self.elements(u64::from(size) * each, kinds.map(Type))?;
        Ok(Some(head))
    }

    fn compact_value(&mut self, kind: Type, rest: &[u8]) -> Result<Option<usize>, Malformed> {
        self.levels.pop();
        let len = match kind {
            Type::BOOL | Type::I8 => Some(1),
            Type::DOUBLE => Some(8),
            Type::UUID => Some(16),
            Type::I16 | Type::I32 | Type::I64 => varint(rest)?.map(|(_, len)| len),
            Type::STRING => match varint(rest)? {
                None => None,
                Some((size, len)) => {
                    let size = i32::try_from(size).map_err(|_| Malformed::size(size))?;
                    Some(len + size as usize)
                }
            },
            Type::STRUCT => {
                self.levels.push(Level::Struct);
                return Ok(Some(0));
            }
            Type::LIST | Type::SET => match list_head(rest)? {
                None => None,
                Some((element, count, len)) => {
                    self.elements(count, [element; 2])?;
                    return Ok(Some(len));
                }
            },
            Type::MAP => match map_head(rest)? {
                None => None,
                Some((kinds, count, len)) => {
                    self.elements(count * 2, kinds)?;
                    return Ok(Some(len));
                }
            },
            Type(other) => return Err(Malformed::no_type(other)),
        };
        if len.is_none() {
            self.levels.push(Level::Value(kind));
        }
        Ok(len)
    }

    /// Begins elements; those of constant size are skipped at once.
    fn elements(&mut self, left: u64, kinds: [Type; 2]) -> Result<(), Malformed> {
        if left == 0 {
            return Ok(());
        }
        if let Some(none) = kinds.iter().find(|kind| kind.least().is_none()) {
            return Err(Malformed::no_type(none.0));
        }
        let step = match (self.encoded, kinds[0].fixed()) {
            (Encoded::Binary, Some(len)) if kinds[0] == kinds[1] => Some(len),
            (Encoded::Compact, Some(len)) if kinds[0] == kinds[1] && len != 2 && len != 4 => {
                (kinds[0] != Type::I64).then_some(len)
            }
            _ => None,
        };
        match step {
            Some(len) => {
                let bytes = left.saturating_mul(len as u64);
                self.at = self.at.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX / 2));
            }
            None => self.levels.push(Level::Elements { left, kinds }),
        }
        Ok(())
    }
}

/// Reads element type, count and length of the head of a compact list.
fn list_head(rest: &[u8]) -> Result<Option<(Type, u64, usize)>, Malformed> {
    let Some(head) = rest.first().copied() else { return Ok(None) };
    let (count, len) = match head >> 4 {
        15 => match varint(&rest[1..])? {
            None => return Ok(None),
            Some((count, len)) => (i32::try_from(count).map_err(|_| Malformed::size(count))? as u64, 1 + len),
        },
        count => (u64::from(count), 1),
    };
    let kind = if count == 0 { Type::STOP } else { binary_type(head & 0x0F)? };
    Ok(Some((kind, count, len)))
}

/// Reads types, count and length of the head of a compact map.
fn map_head(rest: &[u8]) -> Result<Option<([Type; 2], u64, usize)>, Malformed> {
    let Some((count, len)) = varint(rest)? else { return Ok(None) };
    if count == 0 {
        return Ok(Some(([Type::STOP; 2], 0, len)));
    }
    let count = i32::try_from(count).map_err(|_| Malformed::size(count))? as u64;
    let Some(kinds) = rest.get(len) else { return Ok(None) };
    Ok(Some(([binary_type(kinds >> 4)?, binary_type(kinds & 0x0F)?], count, len + 1)))
}
