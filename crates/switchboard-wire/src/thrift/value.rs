//! Values in the binary protocol, for generated code.

use super::{DEPTH_MAX, Malformed, Type};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

/// Memory that the elements of a message's containers may use, in bytes: an empty struct is one byte on the wire and
/// can be hundreds in memory.
const ELEMENTS_MAX: usize = 64 << 20;

/// A type of fields, elements, arguments and results.
pub trait Value: Sized {
    /// Type on the wire.
    const TYPE: Type;

    /// Number of the only field of a struct, if that field is a struct and always present.
    const SOLE: Option<i16> = None;

    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the value.
    ///
    /// # Errors
    /// Returns an error for bytes that are not such a value.
    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Returns the value of a missing result, if the type allows one.
    fn absent() -> Option<Self> {
        None
    }
}

/// Reads values, structs field by field, from a message in one piece.
#[derive(Debug)]
pub struct Reader<'a> {
    whole: &'a Bytes,
    rest: &'a [u8],
    depth: usize,
    /// Bytes of memory that elements may still use.
    budget: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the front of `whole`; binary values are slices of it.
    pub fn new(whole: &'a Bytes) -> Reader<'a> {
        Reader { whole, rest: whole, depth: 0, budget: ELEMENTS_MAX }
    }

    /// Returns the number of bytes that have not been read.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the bytes that have not been read.
    pub fn rest(&self) -> Bytes {
        self.whole.slice_ref(self.rest)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(Malformed::cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(Malformed::cut_short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Enters a struct or container.
    ///
    /// # Errors
    /// Returns an error if they are nested too deep.
    #[inline]
    pub fn enter(&mut self) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Malformed::deep()) } else { Ok(()) }
    }

    /// Leaves a struct or container.
    #[inline]
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Reads the type and number of the next field; `None` at the end of the struct.
    ///
    /// # Errors
    /// Returns an error if the bytes end within the struct.
    #[inline]
    pub fn field(&mut self) -> Result<Option<(Type, i16)>, Malformed> {
        let [kind] = self.array()?;
        if kind == 0 {
            return Ok(None);
        }
        Ok(Some((Type(kind), i16::from_be_bytes(self.array()?))))
    }

    /// Reads the value of a field into `place`; a value of another type is skipped, as in every Thrift library.
    ///
    /// # Errors
    /// Returns an error for bytes that are not a value of type `kind`.
    #[inline]
    pub fn known<T: Value>(&mut self, kind: Type, place: &mut Option<T>) -> Result<(), Malformed> {
        if kind == T::TYPE {
            *place = Some(T::read(self)?);
            Ok(())
        } else {
            self.skip(kind)
        }
    }

    /// Skips a value.
    ///
    /// # Errors
    /// Returns an error for bytes that are not such a value.
    pub fn skip(&mut self, kind: Type) -> Result<(), Malformed> {
        if let Some(len) = kind.fixed() {
            return self.take(len).map(drop);
        }
        match kind {
            Type::STRING => {
                let len = self.length()?;
                self.take(len).map(drop)
            }
            Type::STRUCT => {
                self.enter()?;
                while let Some((kind, _)) = self.field()? {
                    self.skip(kind)?;
                }
                self.leave();
                Ok(())
            }
            Type::LIST | Type::SET => {
                self.enter()?;
                let (element, count) = self.list()?;
                self.skip_elements(&[element], count)?;
                self.leave();
                Ok(())
            }
            Type::MAP => {
                self.enter()?;
                let (kinds, count) = self.map()?;
                self.skip_elements(&kinds, count)?;
                self.leave();
                Ok(())
            }
            Type(other) => Err(Malformed::no_type(other)),
        }
    }

    fn skip_elements(&mut self, kinds: &[Type], count: usize) -> Result<(), Malformed> {
        if let [kind] = kinds
            && let Some(len) = kind.fixed()
        {
            return self.take(len * count).map(drop);
        }
        for _ in 0..count {
            for kind in kinds {
                self.skip(*kind)?;
            }
        }
        Ok(())
    }

    /// Reads the element type of a list or set, and the number of elements.
    ///
    /// # Errors
    /// Returns an error for more elements than there are bytes, and for an unknown type.
    pub fn list(&mut self) -> Result<(Type, usize), Malformed> {
        let [kind] = self.array()?;
        Ok((Type(kind), self.count(&[Type(kind)])?))
    }

    /// Reads the types of the keys and values of a map, and the number of pairs.
    ///
    /// # Errors
    /// Returns an error for more pairs than there are bytes, and for an unknown type.
    pub fn map(&mut self) -> Result<([Type; 2], usize), Malformed> {
        let kinds = self.array::<2>()?.map(Type);
        Ok((kinds, self.count(&kinds)?))
    }

    /// Reads the length of a string.
    fn length(&mut self) -> Result<usize, Malformed> {
        let len = i32::from_be_bytes(self.array()?);
        usize::try_from(len).ok().filter(|len| *len <= self.rest.len()).ok_or_else(|| Malformed::size(len))
    }

    /// Reads the number of elements of these types, and checks it against the remaining bytes.
    fn count(&mut self, kinds: &[Type]) -> Result<usize, Malformed> {
        let count = i32::from_be_bytes(self.array()?);
        if count == 0 {
            // Empty containers may have no element type.
            return Ok(0);
        }
        let mut least = 0;
        for kind in kinds {
            least += kind.least().ok_or_else(|| Malformed::no_type(kind.0))?;
        }
        let fits = |count: &usize| count.checked_mul(least).is_some_and(|bytes| bytes <= self.rest.len());
        usize::try_from(count).ok().filter(fits).ok_or_else(|| Malformed::size(count))
    }

    /// Reads the number of elements of a list or set of `T`; `None` if the elements are of another type, which are
    /// skipped.
    fn elements<T: Value>(&mut self) -> Result<Option<usize>, Malformed> {
        let (kind, count) = self.list()?;
        if count > 0 && kind != T::TYPE {
            self.skip_elements(&[kind], count)?;
            return Ok(None);
        }
        self.charge::<T>(count)?;
        Ok(Some(count))
    }

    /// Charges the memory of elements.
    fn charge<T>(&mut self, count: usize) -> Result<(), Malformed> {
        let bytes = count.saturating_mul(size_of::<T>());
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(Malformed(
                format!("the elements of its containers take more than {ELEMENTS_MAX} bytes of memory")
                    .into(),
            )),
        }
    }
}

/// Writes a field.
#[inline]
pub fn put_field<T: Value>(out: &mut Vec<u8>, id: i16, value: &T) {
    put_field_head(out, T::TYPE, id);
    value.write(out);
}

/// Writes type and number before the value of a field.
#[inline]
pub fn put_field_head(out: &mut Vec<u8>, kind: Type, id: i16) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[kind.0, high, low]);
}

/// Writes the end of a struct.
#[inline]
pub fn put_stop(out: &mut Vec<u8>) {
    out.push(0);
}

/// Lengths are not checked here; messages that are too large for the wire are rejected when they are sent.
fn put_len(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&i32::try_from(len).unwrap_or(i32::MAX).to_be_bytes());
}

macro_rules! numbers {
    ($($number:ty: $kind:ident),*) => {
        $(impl Value for $number {
            const TYPE: Type = Type::$kind;

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            #[inline]
            fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(<$number>::from_be_bytes(input.array()?))
            }
        })*
    };
}

numbers!(i8: I8, i16: I16, i32: I32, i64: I64, f64: DOUBLE);

/// No value: the result of a method that returns nothing.
impl Value for () {
    const TYPE: Type = Type::VOID;

    fn write(&self, _out: &mut Vec<u8>) {}

    fn read(_input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(())
    }
}

impl Value for bool {
    const TYPE: Type = Type::BOOL;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(input.array()? != [0])
    }
}

impl Value for String {
    const TYPE: Type = Type::STRING;

    fn write(&self, out: &mut Vec<u8>) {
        put_len(out, self.len());
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.length()?;
        let text = std::str::from_utf8(input.take(len)?);
        Ok(text
            .map_err(|_| Malformed("a string is not UTF-8; binary is the type for bytes".into()))?
            .to_owned())
    }
}

impl Value for Bytes {
    const TYPE: Type = Type::STRING;

    fn write(&self, out: &mut Vec<u8>) {
        put_len(out, self.len());
        out.extend_from_slice(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let len = input.length()?;
        let taken = input.take(len)?;
        Ok(input.whole.slice_ref(taken))
    }
}

impl<T: Value> Value for Box<T> {
    const TYPE: Type = T::TYPE;

    fn write(&self, out: &mut Vec<u8>) {
        T::write(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::read(input).map(Box::new)
    }
}

impl<T: Value> Value for Vec<T> {
    const TYPE: Type = Type::LIST;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(T::TYPE.0);
        put_len(out, self.len());
        self.iter().for_each(|element| element.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.enter()?;
        let Some(count) = input.elements::<T>()? else {
            input.leave();
            return Ok(Vec::new());
        };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(input)?);
        }
        input.leave();
        Ok(elements)
    }
}

impl<T: Ord + Value> Value for BTreeSet<T> {
    const TYPE: Type = Type::SET;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(T::TYPE.0);
        put_len(out, self.len());
        self.iter().for_each(|element| element.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.enter()?;
        let mut elements = BTreeSet::new();
        for _ in 0..input.elements::<T>()?.unwrap_or(0) {
            elements.insert(T::read(input)?);
        }
        input.leave();
        Ok(elements)
    }
}

impl<K: Ord + Value, V: Value> Value for BTreeMap<K, V> {
    const TYPE: Type = Type::MAP;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[K::TYPE.0, V::TYPE.0]);
        put_len(out, self.len());
        for (key, value) in self {
            key.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.enter()?;
        let (kinds, count) = input.map()?;
        let mut entries = BTreeMap::new();
        if count > 0 && kinds != [K::TYPE, V::TYPE] {
            input.skip_elements(&kinds, count)?;
        } else {
            input.charge::<(K, V)>(count)?;
            for _ in 0..count {
                let key = K::read(input)?;
                entries.insert(key, V::read(input)?);
            }
        }
        input.leave();
        Ok(entries)
    }
}

/// A double that can be an element of a set or the key of a map: IEEE 754 total order, NaN included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Double(pub f64);

impl Ord for Double {
    fn cmp(&self, other: &Double) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Double {
    fn partial_cmp(&self, other: &Double) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Double {
    fn eq(&self, other: &Double) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Double {}

impl Hash for Double {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl Value for Double {
    const TYPE: Type = Type::DOUBLE;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        f64::read(input).map(Double)
    }
}

/// A UUID: 16 bytes, as text `123e4567-e89b-12d3-a456-426614174000`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = Malformed;

    /// Parses 32 hexadecimal digits; hyphens may be anywhere between bytes.
    fn from_str(text: &str) -> Result<Uuid, Malformed> {
        let wrong = || Malformed(format!("{text:?} is not a UUID; expected 32 hexadecimal digits").into());
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut uuid = [0; 16];
        for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Uuid(uuid))
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(Uuid)
        }
    }
}

impl Value for Uuid {
    const TYPE: Type = Type::UUID;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.array().map(Uuid)
    }
}
