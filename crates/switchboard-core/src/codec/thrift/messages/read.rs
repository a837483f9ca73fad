//! Thrift structs, converted to protobuf while they are read: no value is stored.

use buffa::{
    encoding::{Tag, WireType, encode_varint},
    types,
};
use buffa_descriptor::{DescriptorPool, FieldDescriptor, FieldKind, MessageIndex, ScalarType, SingularKind};
use bytes::Bytes;
use switchboard_wire::thrift::{Malformed, Reader, Type, Value};

/// Reads structs as the messages of a pool.
pub(super) struct Structs<'a> {
    pool: &'a DescriptorPool,
    input: Reader<'a>,
    /// Bytes that may still be written.
    most: usize,
    left: usize,
}

/// Approximate bytes of the tag and the length around a message.
const AROUND: usize = 4;

type Read<T = ()> = Result<T, Malformed>;

impl<'a> Structs<'a> {
    /// Reads the structs in `bytes`, of which at most `most` bytes of protobuf may result.
    pub(super) fn new(pool: &'a DescriptorPool, bytes: &'a Bytes, most: usize) -> Structs<'a> {
        Structs { pool, input: Reader::new(bytes), most, left: most }
    }

    /// Counts bytes that are written. A byte of Thrift can become ten of protobuf.
    fn spend(&mut self, bytes: usize) -> Read {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Malformed(format!("it is more than {} bytes (message_bytes_max) as protobuf", self.most).into())
        })?;
        Ok(())
    }

    /// Reads the struct of a function's arguments, of which field 1 is the message; without field 1 it is empty.
    pub(super) fn argument(&mut self, message: MessageIndex, out: &mut Vec<u8>) -> Read {
        self.input.enter()?;
        while let Some((kind, id)) = self.input.field()? {
            match (kind, id) {
                (Type::STRUCT, 1) => self.message(message, out)?,
                (kind, 1) => return Err(wrong("the request", "a struct", kind)),
                (kind, _) => self.input.skip(kind)?,
            }
        }
        self.input.leave();
        Ok(())
    }

    /// Reads the struct of a function's result, of which field 0 is the message; without field 0 it returns which
    /// exception is in it, if one is.
    pub(super) fn result(
        &mut self,
        message: MessageIndex,
        out: &mut Vec<u8>,
    ) -> Read<Result<(), Option<i16>>> {
        let mut outcome = Err(None);
        self.input.enter()?;
        while let Some((kind, id)) = self.input.field()? {
            match (kind, id) {
                (Type::STRUCT, 0) => {
                    self.message(message, out)?;
                    outcome = Ok(());
                }
                (kind, 0) => return Err(wrong("the reply", "a struct", kind)),
                (kind, id) => {
                    self.input.skip(kind)?;
                    if kind == Type::STRUCT {
                        outcome = outcome.map_err(|_| Some(id));
                    }
                }
            }
        }
        self.input.leave();
        Ok(outcome)
    }

    pub(super) fn message(&mut self, message: MessageIndex, out: &mut Vec<u8>) -> Read {
        let message = self.pool.message(message);
        self.input.enter()?;
        while let Some((kind, id)) = self.input.field()? {
            match u32::try_from(id).ok().and_then(|number| message.field(number)) {
                Some(field) => self.field(field, kind, out)?,
                None => self.input.skip(kind)?,
            }
        }
        self.input.leave();
        Ok(())
    }

    fn field(&mut self, field: &FieldDescriptor, kind: Type, out: &mut Vec<u8>) -> Read {
        let name = field.name();
        match field.kind() {
            FieldKind::Singular(single) => self.value(name, FieldTag::of(field), single, kind, out),
            FieldKind::List(single) => self.list(field, single, kind, out),
            FieldKind::Map { key, value } => {
                if kind != Type::MAP {
                    return Err(wrong(name, "a map", kind));
                }
                self.input.enter()?;
                let ([key_type, value_type], count) = self.input.map()?;
                for _ in 0..count {
                    self.spend(AROUND)?;
                    let mut entry = Vec::new();
                    let tag = |number| FieldTag { number, is_delimited: false };
                    self.value(name, tag(1), SingularKind::Scalar(key), key_type, &mut entry)?;
                    self.value(name, tag(2), value, value_type, &mut entry)?;
                    put_bytes(field.number(), &entry, out);
                }
                self.input.leave();
                Ok(())
            }
        }
    }

    fn list(&mut self, field: &FieldDescriptor, single: SingularKind, kind: Type, out: &mut Vec<u8>) -> Read {
        if ![Type::LIST, Type::SET].contains(&kind) {
            return Err(wrong(field.name(), "a list", kind));
        }
        self.input.enter()?;
        let (element, count) = self.input.list()?;
        if wire_type(single) == WireType::LengthDelimited {
            for _ in 0..count {
                self.value(field.name(), FieldTag::of(field), single, element, out)?;
            }
        } else if count > 0 {
            // Readers of protobuf accept packed numbers even if they would not write them so.
            let mut packed = Vec::new();
            for _ in 0..count {
                self.number(field.name(), single, element, &mut packed)?;
            }
            put_bytes(field.number(), &packed, out);
        }
        self.input.leave();
        Ok(())
    }

    /// Writes a value with its tag.
    fn value(
        &mut self,
        name: &str,
        tag: FieldTag,
        single: SingularKind,
        kind: Type,
        out: &mut Vec<u8>,
    ) -> Read {
        match single {
            SingularKind::Message(message) => {
                if kind != Type::STRUCT {
                    return Err(wrong(name, "a struct", kind));
                }
                self.spend(AROUND)?;
                if tag.is_delimited {
                    Tag::new(tag.number, WireType::StartGroup).encode(out);
                    self.message(message, out)?;
                    Tag::new(tag.number, WireType::EndGroup).encode(out);
                } else {
                    let mut inner = Vec::new();
                    self.message(message, &mut inner)?;
                    put_bytes(tag.number, &inner, out);
                }
            }
            SingularKind::Scalar(ScalarType::Bytes | ScalarType::String) => {
                if kind != Type::STRING {
                    return Err(wrong(name, "a string or binary", kind));
                }
                let bytes = Bytes::read(&mut self.input)?;
                self.spend(AROUND + bytes.len())?;
                put_bytes(tag.number, &bytes, out);
            }
            SingularKind::Enum(_) | SingularKind::Scalar(_) => {
                Tag::new(tag.number, wire_type(single)).encode(out);
                self.number(name, single, kind, out)?;
            }
        }
        Ok(())
    }

    /// Writes a number or boolean without its tag.
    fn number(&mut self, name: &str, single: SingularKind, kind: Type, out: &mut Vec<u8>) -> Read {
        let before = out.len();
        self.bare_number(name, single, kind, out)?;
        self.spend(out.len() - before)
    }

    fn bare_number(&mut self, name: &str, single: SingularKind, kind: Type, out: &mut Vec<u8>) -> Read {
        use ScalarType as S;
        let SingularKind::Scalar(scalar) = single else {
            types::encode_int32(self.narrow(name, kind)?, out);
            return Ok(());
        };
        match scalar {
            S::Bool if kind != Type::BOOL => return Err(wrong(name, "a bool", kind)),
            S::Bool => types::encode_bool(bool::read(&mut self.input)?, out),
            S::Double | S::Float if kind != Type::DOUBLE => return Err(wrong(name, "a double", kind)),
            S::Double => types::encode_double(f64::read(&mut self.input)?, out),
            S::Float => types::encode_float(f64::read(&mut self.input)? as f32, out),
            S::Int32 => types::encode_int32(self.narrow(name, kind)?, out),
            S::Sint32 => types::encode_sint32(self.narrow(name, kind)?, out),
            S::Sfixed32 => types::encode_sfixed32(self.narrow(name, kind)?, out),
            S::Uint32 => types::encode_uint32(self.narrow(name, kind)?, out),
            S::Fixed32 => types::encode_fixed32(self.narrow(name, kind)?, out),
            S::Int64 | S::Uint64 => types::encode_int64(self.integer(name, kind)?, out),
            S::Sint64 => types::encode_sint64(self.integer(name, kind)?, out),
            S::Fixed64 | S::Sfixed64 => types::encode_sfixed64(self.integer(name, kind)?, out),
            // These are not numbers, and are handled elsewhere.
            S::Bytes | S::String => return Err(wrong(name, "a number", kind)),
        }
        Ok(())
    }

    fn narrow<T: TryFrom<i64>>(&mut self, name: &str, kind: Type) -> Read<T> {
        let number = self.integer(name, kind)?;
        T::try_from(number).map_err(|_| Malformed(format!("field {name} does not fit {number}").into()))
    }

    fn integer(&mut self, name: &str, kind: Type) -> Read<i64> {
        let input = &mut self.input;
        Ok(match kind {
            Type::I8 => i8::read(input)?.into(),
            Type::I16 => i16::read(input)?.into(),
            Type::I32 => i32::read(input)?.into(),
            Type::I64 => i64::read(input)?,
            _ => return Err(wrong(name, "a whole number", kind)),
        })
    }
}

/// The field that a value is written to.
#[derive(Clone, Copy)]
struct FieldTag {
    number: u32,
    /// Encoded between two tags, as groups are.
    is_delimited: bool,
}

impl FieldTag {
    fn of(field: &FieldDescriptor) -> FieldTag {
        FieldTag { number: field.number(), is_delimited: field.is_delimited() }
    }
}

fn wire_type(single: SingularKind) -> WireType {
    use ScalarType as S;
    match single {
        SingularKind::Message(_) | SingularKind::Scalar(S::Bytes | S::String) => WireType::LengthDelimited,
        SingularKind::Scalar(S::Double | S::Fixed64 | S::Sfixed64) => WireType::Fixed64,
        SingularKind::Scalar(S::Fixed32 | S::Float | S::Sfixed32) => WireType::Fixed32,
        SingularKind::Enum(_) | SingularKind::Scalar(_) => WireType::Varint,
    }
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    Tag::new(number, WireType::LengthDelimited).encode(out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn wrong(name: &str, expected: &str, kind: Type) -> Malformed {
    Malformed(format!("{name} is {expected} and not of type {}", kind.0).into())
}
