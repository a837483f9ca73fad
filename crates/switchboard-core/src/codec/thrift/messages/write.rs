//! Protobuf messages, converted to Thrift structs.

use crate::Result;
use buffa::editions::FieldPresence;
use buffa_descriptor::{
    FieldKind, ScalarType, SingularKind,
    reflect::{MapKeyRef, ReflectMessage, ValueRef},
};
use bytes::Bytes;
use switchboard_wire::{
    Status,
    thrift::{
        DEPTH_MAX, Type, Value,
        value::{put_field_head, put_stop},
    },
};

/// Bytes in the binary protocol, up to a limit.
pub(super) struct Written {
    out: Vec<u8>,
    most: usize,
}

impl Written {
    pub(super) fn new(expected: usize, most: usize) -> Written {
        Written { out: Vec::with_capacity(expected.min(most)), most }
    }

    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.out.into()
    }

    /// Appends a message that is nested at this depth.
    ///
    /// # Errors
    /// `Unimplemented` for a field whose number Thrift does not have, `ResourceExhausted` for a message that nests
    /// deeper than its readers support, or becomes too large.
    pub(super) fn message(&mut self, message: &dyn ReflectMessage, depth: usize) -> Result<()> {
        check_depth(depth)?;
        let descriptor = message.message_descriptor();
        for field in descriptor.fields() {
            let is_set = message.has(field);
            let is_optional = matches!(field.kind(), FieldKind::Singular(kind)
                if field.presence() != FieldPresence::Implicit || matches!(kind, SingularKind::Message(_)));
            if !is_set && is_optional {
                continue;
            }
            let Ok(id) = i16::try_from(field.number()) else {
                if !is_set {
                    continue;
                }
                let (name, number) = (field.name(), field.number());
                let text = format!(
                    "field {name} of {} has the number {number}, and Thrift none above {}: call it on another wire",
                    descriptor.full_name(),
                    i16::MAX
                );
                return Err(Status::unimplemented(text));
            };
            put_field_head(&mut self.out, type_of(field.kind()), id);
            self.value(message.get(field), field.kind(), depth)?;
        }
        put_stop(&mut self.out);
        self.check_size()
    }

    fn value(&mut self, value: ValueRef<'_>, kind: FieldKind, depth: usize) -> Result<()> {
        match (value, kind) {
            (ValueRef::List(list), FieldKind::List(element)) => {
                check_depth(depth + 1)?;
                self.out.push(type_of(FieldKind::Singular(element)).0);
                self.count(list.len())?;
                let mut written = Ok(());
                list.for_each(&mut |item| {
                    if written.is_ok() {
                        written = self.single(item, depth + 1);
                    }
                });
                written
            }
            (ValueRef::Map(map), FieldKind::Map { key, value }) => {
                check_depth(depth + 1)?;
                self.out.push(scalar_type(key).0);
                self.out.push(type_of(FieldKind::Singular(value)).0);
                self.count(map.len())?;
                let mut written = Ok(());
                map.for_each(&mut |key, value| {
                    if written.is_ok() {
                        let key = match key {
                            MapKeyRef::Bool(key) => ValueRef::Bool(key),
                            MapKeyRef::I32(key) => ValueRef::I32(key),
                            MapKeyRef::I64(key) => ValueRef::I64(key),
                            MapKeyRef::U32(key) => ValueRef::U32(key),
                            MapKeyRef::U64(key) => ValueRef::U64(key),
                            MapKeyRef::String(key) => ValueRef::String(key),
                        };
                        written = self.single(key, depth + 1).and_then(|()| self.single(value, depth + 1));
                    }
                });
                written
            }
            (value, _) => self.single(value, depth),
        }
    }

    fn single(&mut self, value: ValueRef<'_>, depth: usize) -> Result<()> {
        let out = &mut self.out;
        match value {
            ValueRef::Bool(value) => value.write(out),
            ValueRef::I32(value) | ValueRef::EnumNumber(value) => value.write(out),
            ValueRef::I64(value) => value.write(out),
            ValueRef::U32(value) => i64::from(value).write(out),
            ValueRef::U64(value) => value.cast_signed().write(out),
            ValueRef::F32(value) => f64::from(value).write(out),
            ValueRef::F64(value) => value.write(out),
            ValueRef::String(value) => self.bytes(value.as_bytes())?,
            ValueRef::Bytes(value) => self.bytes(value)?,
            ValueRef::Message(inner) => self.message(&*inner, depth + 1)?,
            ValueRef::List(_) | ValueRef::Map(_) => {
                return Err(Status::internal("protobuf has no containers in containers"));
            }
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn count(&mut self, count: usize) -> Result<()> {
        let count = i32::try_from(count).map_err(|_| {
            Status::resource_exhausted(format!("{count} bytes or elements are too many for Thrift"))
        })?;
        count.write(&mut self.out);
        Ok(())
    }

    /// Checked between messages: one message alone is not much larger in Thrift than in protobuf.
    fn check_size(&self) -> Result<()> {
        if self.out.len() <= self.most {
            return Ok(());
        }
        let text = format!("as Thrift the message has more than {} bytes, which is the limit", self.most);
        Err(Status::resource_exhausted(text))
    }
}

fn check_depth(depth: usize) -> Result<()> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    let text =
        format!("the message nests deeper than {DEPTH_MAX} messages and lists, where readers of Thrift stop");
    Err(Status::resource_exhausted(text))
}

fn type_of(kind: FieldKind) -> Type {
    match kind {
        FieldKind::List(_) => Type::LIST,
        FieldKind::Map { .. } => Type::MAP,
        FieldKind::Singular(SingularKind::Enum(_)) => Type::I32,
        FieldKind::Singular(SingularKind::Message(_)) => Type::STRUCT,
        FieldKind::Singular(SingularKind::Scalar(scalar)) => scalar_type(scalar),
    }
}

fn scalar_type(scalar: ScalarType) -> Type {
    use ScalarType as S;
    match scalar {
        S::Bool => Type::BOOL,
        S::Bytes | S::String => Type::STRING,
        S::Double | S::Float => Type::DOUBLE,
        S::Int32 | S::Sfixed32 | S::Sint32 => Type::I32,
        S::Fixed32 | S::Fixed64 | S::Int64 | S::Sfixed64 | S::Sint64 | S::Uint32 | S::Uint64 => Type::I64,
    }
}
