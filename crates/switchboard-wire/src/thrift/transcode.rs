//! Conversion of structs between the protocols, without a schema: both contain the type of every value.

use super::{
    DEPTH_MAX, Malformed, Type,
    compact::{binary_type, compact_type, least, put_varint, unzigzag, varint, zigzag},
};

/// Converts the struct at the front of `compact` to the binary protocol, with at most `max` bytes; returns it and the
/// number of bytes of `compact` that it used.
///
/// # Errors
/// Returns an error for bytes that are not a struct, and for a result over `max`.
pub fn to_binary(compact: &[u8], max: usize) -> Result<(Vec<u8>, usize), Malformed> {
    let mut from = FromCompact { rest: compact, out: Vec::with_capacity(compact.len() * 2), max };
    from.structure(1)?;
    Ok((from.out, compact.len() - from.rest.len()))
}

/// Converts the struct at the front of `binary` to the compact protocol; returns it and the number of bytes of `binary`
/// that it used.
///
/// # Errors
/// Returns an error for bytes that are not a struct.
pub fn to_compact(binary: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let mut from = FromBinary { rest: binary, out: Vec::with_capacity(binary.len()) };
    from.structure(1)?;
    Ok((from.out, binary.len() - from.rest.len()))
}

struct FromCompact<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
    max: usize,
}

impl<'a> FromCompact<'a> {
    fn structure(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let mut last = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.out.push(0);
                return Ok(());
            }
            let (delta, kind) = (head >> 4, head & 0x0F);
            last = match delta {
                0 => narrow(unzigzag(self.varint()?))?,
                delta => {
                    last.checked_add(i16::from(delta)).ok_or_else(|| Malformed::size("a field number"))?
                }
            };
            let binary = binary_type(kind)?;
            self.out.push(binary.0);
            self.out.extend_from_slice(&last.to_be_bytes());
            if binary == Type::BOOL {
                self.out.push(u8::from(kind == 1));
            } else {
                self.value(binary, depth)?;
            }
            self.check_size()?;
        }
    }

    /// Converts a value other than a field of type `BOOL`.
    fn value(&mut self, kind: Type, depth: usize) -> Result<(), Malformed> {
        match kind {
            Type::BOOL => {
                let byte = self.byte()?;
                self.out.push(u8::from(byte == 1));
            }
            Type::I8 => {
                let byte = self.byte()?;
                self.out.push(byte);
            }
            Type::I16 => {
                let number: i16 = narrow(unzigzag(self.varint()?))?;
                self.out.extend_from_slice(&number.to_be_bytes());
            }
            Type::I32 => {
                let number: i32 = narrow(unzigzag(self.varint()?))?;
                self.out.extend_from_slice(&number.to_be_bytes());
            }
            Type::I64 => {
                let number = unzigzag(self.varint()?);
                self.out.extend_from_slice(&number.to_be_bytes());
            }
            Type::DOUBLE => {
                let bytes = self.take(8)?;
                self.out.extend(bytes.iter().rev());
            }
            Type::UUID => {
                let bytes = self.take(16)?;
                self.out.extend_from_slice(bytes);
            }
            Type::STRING => {
                let len = self.size(1)?;
                let bytes = self.take(len)?;
                self.put_len(len);
                self.out.extend_from_slice(bytes);
            }
            Type::STRUCT => self.structure(depth + 1)?,
            Type::LIST | Type::SET => self.list(depth + 1)?,
            Type::MAP => self.map(depth + 1)?,
            Type(other) => return Err(Malformed::no_type(other)),
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let head = self.byte()?;
        // Some writers give empty lists no type.
        let kind = if head >> 4 == 0 && head & 0x0F == 0 { Type::STOP } else { binary_type(head & 0x0F)? };
        let count = match head >> 4 {
            15 => self.size(least(kind))?,
            count => self.fits(u64::from(count), least(kind))?,
        };
        self.out.push(kind.0);
        self.put_len(count);
        for _ in 0..count {
            self.value(kind, depth)?;
            self.check_size()?;
        }
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let count = self.size(2)?;
        let (key, value) = match count {
            0 => (Type::STOP, Type::STOP),
            _ => {
                let kinds = self.byte()?;
                (binary_type(kinds >> 4)?, binary_type(kinds & 0x0F)?)
            }
        };
        self.out.extend_from_slice(&[key.0, value.0]);
        self.put_len(count);
        for _ in 0..count {
            self.value(key, depth)?;
            self.value(value, depth)?;
            self.check_size()?;
        }
        Ok(())
    }

    /// Checks the size of the result: a compact struct can be 8 times as large in binary.
    fn check_size(&self) -> Result<(), Malformed> {
        if self.out.len() <= self.max {
            return Ok(());
        }
        Err(Malformed(
            format!("more than {} bytes (message_bytes_max) in the binary protocol", self.max).into(),
        ))
    }

    fn put_len(&mut self, len: usize) {
        self.out.extend_from_slice(&(len as i32).to_be_bytes());
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(Malformed::cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let (number, len) = varint(self.rest)?.ok_or_else(Malformed::cut_short)?;
        self.rest = &self.rest[len..];
        Ok(number)
    }

    /// Reads a number of elements of at least `least` bytes each.
    fn size(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = self.varint()?;
        self.fits(count, least)
    }

    fn fits(&self, count: u64, least: usize) -> Result<usize, Malformed> {
        let fits = |count: &usize| {
            *count <= i32::MAX as usize && count.checked_mul(least).is_some_and(|len| len <= self.rest.len())
        };
        usize::try_from(count).ok().filter(fits).ok_or_else(|| Malformed::size(count))
    }
}

struct FromBinary<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
}

impl<'a> FromBinary<'a> {
    fn structure(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let mut last = 0i16;
        loop {
            let kind = Type(self.array::<1>()?[0]);
            if kind == Type::STOP {
                self.out.push(0);
                return Ok(());
            }
            let id = i16::from_be_bytes(self.array()?);
            let mut compact = compact_type(kind)?;
            if kind == Type::BOOL {
                compact = if self.array()? == [0u8] { 2 } else { 1 };
            }
            match i32::from(id) - i32::from(last) {
                delta @ 1..=15 => self.out.push((delta as u8) << 4 | compact),
                _ => {
                    self.out.push(compact);
                    put_varint(&mut self.out, zigzag(id.into()));
                }
            }
            last = id;
            if kind != Type::BOOL {
                self.value(kind, depth)?;
            }
        }
    }

    fn value(&mut self, kind: Type, depth: usize) -> Result<(), Malformed> {
        match kind {
            Type::BOOL => {
                let [byte] = self.array()?;
                self.out.push(if byte == 0 { 2 } else { 1 });
            }
            Type::I8 => {
                let [byte] = self.array()?;
                self.out.push(byte);
            }
            Type::I16 => {
                let number = i16::from_be_bytes(self.array()?);
                put_varint(&mut self.out, zigzag(number.into()));
            }
            Type::I32 => {
                let number = i32::from_be_bytes(self.array()?);
                put_varint(&mut self.out, zigzag(number.into()));
            }
            Type::I64 => {
                let number = i64::from_be_bytes(self.array()?);
                put_varint(&mut self.out, zigzag(number));
            }
            Type::DOUBLE => {
                let bytes: [u8; 8] = self.array()?;
                self.out.extend(bytes.iter().rev());
            }
            Type::UUID => {
                let bytes: [u8; 16] = self.array()?;
                self.out.extend_from_slice(&bytes);
            }
            Type::STRING => {
                let len = self.size(1)?;
                let (bytes, rest) = self.rest.split_at(len);
                self.rest = rest;
                put_varint(&mut self.out, len as u64);
                self.out.extend_from_slice(bytes);
            }
            Type::STRUCT => self.structure(depth + 1)?,
            Type::LIST | Type::SET => self.list(depth + 1)?,
            Type::MAP => self.map(depth + 1)?,
            Type(other) => return Err(Malformed::no_type(other)),
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let kind = Type(self.array::<1>()?[0]);
        let count = self.size(kind.least().unwrap_or(1))?;
        // An empty list may have no type; every reader of compact supports this type.
        let compact = if count == 0 { compact_type(kind).unwrap_or(3) } else { compact_type(kind)? };
        match count {
            0..=14 => self.out.push((count as u8) << 4 | compact),
            _ => {
                self.out.push(0xF0 | compact);
                put_varint(&mut self.out, count as u64);
            }
        }
        for _ in 0..count {
            self.value(kind, depth)?;
        }
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Result<(), Malformed> {
        check_depth(depth)?;
        let [key, value] = self.array()?;
        let (key, value) = (Type(key), Type(value));
        let count = self.size(key.least().unwrap_or(1) + value.least().unwrap_or(1))?;
        put_varint(&mut self.out, count as u64);
        if count > 0 {
            self.out.push(compact_type(key)? << 4 | compact_type(value)?);
        }
        for _ in 0..count {
            self.value(key, depth)?;
            self.value(value, depth)?;
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(Malformed::cut_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn size(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = i32::from_be_bytes(self.array()?);
        let fits = |count: &usize| count.checked_mul(least).is_some_and(|len| len <= self.rest.len());
        usize::try_from(count).ok().filter(fits).ok_or_else(|| Malformed::size(count))
    }
}

fn check_depth(depth: usize) -> Result<(), Malformed> {
    if depth > DEPTH_MAX { Err(Malformed::deep()) } else { Ok(()) }
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T, Malformed> {
    T::try_from(number).map_err(|_| Malformed(format!("{number} is too large for its type").into()))
}
