//! Converts JSON to a FlatBuffers table.

mod unions;

use super::{
    super::{
        json::{Wrong, base64, boolean, double, integer, list, object, text},
        names::instead,
        thrift::For,
    },
    BYTES_MAX, Root, bytes_of, is_in_place, type_name, union_of,
};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use std::{cell::Cell, cmp::Reverse};
use switchboard_build::flatbuffers_interface::{Base, Field, Interface, Type};
use switchboard_wire::flatbuffers::{DEPTH_MAX, Inline, Writer};

impl Root<'_> {
    /// Converts an object to a message. Programs write lists for all vectors, and generated code omits empty ones from
    /// tables.
    ///
    /// # Errors
    /// The value that does not fit, and its field; a message that takes more than `bytes_max`, or nests too deep for
    /// readers.
    pub(crate) fn write(self, json: &Json, whose: For, bytes_max: usize) -> Result<Bytes, String> {
        let tables = Tables {
            interface: self.interface,
            whose,
            bytes_max: bytes_max.min(BYTES_MAX),
            depth: Cell::new(0),
        };
        let written = Writer::message(|out| tables.table(self.table, json, out));
        written.map(Bytes::from).map_err(Wrong::said)
    }
}

/// The part of a table for a field.
enum Part<'a> {
    /// Bytes in the table.
    InPlace(Vec<u8>),
    /// A vector of bytes: the types of unions.
    Tags(Vec<u8>),
    /// A vector of tables with these types.
    Unions(Vec<usize>, Vec<&'a Json>),
    Value(Type, &'a Json),
}

/// A part, and its position.
struct Placed<'a> {
    /// Index in the table.
    number: usize,
    align: usize,
    /// Name of the field, for error texts.
    name: &'a str,
    part: Part<'a>,
}

impl<'a> Placed<'a> {
    /// Creates a part that a field refers to by an offset.
    fn offset(field: &'a Field, number: usize, part: Part<'a>) -> Placed<'a> {
        Placed { number, align: 4, name: &field.name, part }
    }
}

struct Tables<'a> {
    interface: &'a Interface,
    whose: For,
    bytes_max: usize,
    /// Depth of the tables that are being written.
    depth: Cell<u32>,
}

impl<'a> Tables<'a> {
    /// Appends a table; returns its position.
    fn table(&self, at: usize, json: &Json, out: &mut Writer) -> Result<usize, Wrong> {
        let depth = self.depth.get() + 1;
        if depth > DEPTH_MAX {
            return Err(Wrong::new(format!("tables lie deeper than {DEPTH_MAX} in one another")));
        }
        self.depth.set(depth);
        let table = self.table_within(at, json, out)?;
        self.depth.set(depth - 1);
        Ok(table)
    }

    /// Returns whether the value is an empty vector that generated code would omit.
    fn leaves_out(&self, field: &Field, value: &Json) -> bool {
        let is_empty = value.as_array().is_some_and(Vec::is_empty) && matches!(field.ty, Type::Vector(_));
        is_empty && self.whose == For::Programs && !field.required
    }

    /// Structs and tables have bytes for fields that JSON omits: short JSON may be long here.
    fn check(&self, bytes: usize) -> Result<(), Wrong> {
        match bytes > self.bytes_max {
            true => Err(Wrong::new(format!("as FlatBuffers it would exceed {} bytes", self.bytes_max))),
            false => Ok(()),
        }
    }

    fn table_within(&self, at: usize, json: &Json, out: &mut Writer) -> Result<usize, Wrong> {
        let mut parts = self.parts(at, json)?;
        // The widest part is first, which leaves no gaps.
        parts.sort_by_key(|part| Reverse(part.align));
        out.begin();
        let mut slots = Vec::new();
        for Placed { number, align, name, part } in parts {
            match part {
                Part::InPlace(bytes) => out.bytes(number, align, &bytes),
                part => slots.push((out.refer(number, true), name, part)),
            }
        }
        let table = out.end();
        self.check(out.written())?;
        for (slot, name, part) in slots {
            let at = self.referred(&part, out).map_err(|wrong| wrong.within(&format!(".{name}")))?;
            out.point_at(slot, at);
        }
        Ok(table)
    }

    /// Returns the parts of all fields of a table.
    fn parts<'j>(&self, at: usize, json: &'j Json) -> Result<Vec<Placed<'j>>, Wrong>
    where
        'a: 'j,
    {
        let table = &self.interface.tables[at];
        let object = object(&table.name, json)?;
        let names = table.fields.iter().flat_map(|field| {
            let kind = union_of(&field.ty).map(|_| type_name(&field.name));
            [Some(field.name.clone()), kind].into_iter().flatten()
        });
        only(&table.name, object, &names.collect::<Vec<_>>())?;
        let mut placed = Vec::new();
        for field in &table.fields {
            let before = placed.len();
            match union_of(&field.ty) {
                Some(union) => self.union(&table.name, field, union, object, &mut placed)?,
                None => self.plain(field, object, &mut placed)?,
            }
            if field.required && placed.len() == before {
                return Err(Wrong::new(format!("{} has no {}, which is required", table.name, field.name)));
            }
        }
        Ok(placed)
    }

    /// Returns the part of a field that is not a union.
    fn plain<'j>(
        &self,
        field: &'j Field,
        object: &'j Map<String, Json>,
        placed: &mut Vec<Placed<'j>>,
    ) -> Result<(), Wrong> {
        let Some(value) = present(object, &field.name) else { return Ok(()) };
        if self.leaves_out(field, value) {
            return Ok(());
        }
        if !is_in_place(&field.ty) {
            placed.push(Placed::offset(field, field.number, Part::Value(field.ty.clone(), value)));
            return Ok(());
        }
        let mut bytes = Vec::new();
        let written = self.in_place(&field.ty, value, &mut bytes);
        written.map_err(|wrong| wrong.within(&format!(".{}", field.name)))?;
        let is_default = |default| bytes_of(default, bytes.len()) == bytes;
        if field.required || !field.default.is_some_and(is_default) {
            let (_, align) = self.interface.layout(&field.ty);
            placed.push(Placed {
                number: field.number,
                align,
                name: &field.name,
                part: Part::InPlace(bytes),
            });
        }
        Ok(())
    }

    /// Appends a part that a field refers to; returns its position.
    fn referred(&self, part: &Part<'_>, out: &mut Writer) -> Result<usize, Wrong> {
        match part {
            Part::InPlace(_) => unreachable!("it is in the table"),
            Part::Tags(tags) => Ok(out.items(tags.len(), 1, tags)),
            Part::Unions(tables, values) => out.referred_items(values.len(), |out, at| {
                let written = self.table(tables[at], values[at], out);
                written.map_err(|wrong| wrong.within(&format!("[{at}]")))
            }),
            Part::Value(ty, json) => self.value(ty, json, out),
        }
    }

    fn value(&self, ty: &Type, json: &Json, out: &mut Writer) -> Result<usize, Wrong> {
        match ty {
            Type::String => Ok(out.text(text(json, "a text")?)),
            Type::Table(at) => self.table(*at, json, out),
            Type::Vector(item) => self.vector(item, json, out),
            _ => unreachable!("nothing refers to it"),
        }
    }

    fn vector(&self, item: &Type, json: &Json, out: &mut Writer) -> Result<usize, Wrong> {
        if let (true, Json::String(text)) = (self.is_byte(item), json) {
            let bytes = base64(text)?;
            return Ok(out.items(bytes.len(), 1, &bytes));
        }
        let values = list(json)?;
        if is_in_place(item) {
            let mut bytes = Vec::new();
            let written = each(values, |value| {
                self.in_place(item, value, &mut bytes)?;
                self.check(bytes.len())
            });
            written.collect::<Result<(), _>>()?;
            return Ok(out.items(values.len(), self.interface.layout(item).1, &bytes));
        }
        out.referred_items(values.len(), |out, at| {
            self.value(item, &values[at], out).map_err(|wrong| wrong.within(&format!("[{at}]")))
        })
    }

    /// Returns whether vectors of the type are byte strings, for which MessagePack has a type.
    fn is_byte(&self, item: &Type) -> bool {
        match item {
            Type::Base(base) => *base == Base::U8,
            Type::Enum(at) => self.interface.enums[*at].base == Base::U8,
            _ => false,
        }
    }

    /// Appends a value that is stored in place.
    fn in_place(&self, ty: &Type, json: &Json, out: &mut Vec<u8>) -> Result<(), Wrong> {
        match ty {
            Type::Array(item, len) => {
                let values = list(json)?;
                if values.len() != *len {
                    return Err(Wrong::expected(&format!("a list of {len}"), json));
                }
                each(values, |value| self.in_place(item, value, out)).collect()
            }
            Type::Base(base) => number(*base, json, out),
            Type::Enum(at) => {
                let member = match json.as_str() {
                    Some(names) => &self.named(*at, names)?.into(),
                    None => json,
                };
                number(self.interface.enums[*at].base, member, out)
            }
            Type::Struct(at) => {
                let item = &self.interface.structs[*at];
                let object = object(&item.name, json)?;
                only(&item.name, object, &item.fields.iter().map(|field| &*field.name).collect::<Vec<_>>())?;
                let start = out.len();
                for field in &item.fields {
                    out.resize(start + field.at, 0);
                    if let Some(value) = present(object, &field.name) {
                        let written = self.in_place(&field.ty, value, out);
                        written.map_err(|wrong| wrong.within(&format!(".{}", field.name)))?;
                    }
                }
                out.resize(start + item.size, 0);
                Ok(())
            }
            Type::String | Type::Table(_) | Type::Union(_) | Type::Vector(_) => {
                unreachable!("others refer to it")
            }
        }
    }

    /// Returns the number of a member, or of several with spaces between them.
    fn named(&self, at: usize, names: &str) -> Result<i64, Wrong> {
        let item = &self.interface.enums[at];
        let find = |name: &str| {
            let bare = name.rsplit('.').next().unwrap_or(name);
            let found = item.members.iter().find(|(known, _)| known == bare);
            found.map(|(_, number)| *number).ok_or_else(|| {
                let known = instead(bare, item.members.iter().map(|(name, _)| &**name));
                Wrong::new(format!("{} has no {name}{known}", item.name))
            })
        };
        match item.are_bits {
            true => names.split_whitespace().map(find).try_fold(0, |all, bit| bit.map(|bit| all | bit)),
            false => find(names),
        }
    }
}

/// Returns a value that is present; null counts as missing.
fn present<'a>(object: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    object.get(name).filter(|value| !value.is_null())
}

/// Refuses fields whose names the type does not have.
fn only(name: &str, object: &Map<String, Json>, known: &[impl AsRef<str>]) -> Result<(), Wrong> {
    let unknown = object.keys().find(|key| !known.iter().any(|name| name.as_ref() == **key));
    let Some(unknown) = unknown else { return Ok(()) };
    let known = instead(unknown, known.iter().map(AsRef::as_ref));
    Err(Wrong::new(format!("{name} has no {unknown:?}{known}")))
}

/// Converts each value; errors name the index.
fn each<T>(
    values: &[Json],
    mut make: impl FnMut(&Json) -> Result<T, Wrong>,
) -> impl Iterator<Item = Result<T, Wrong>> {
    let numbered = values.iter().enumerate();
    numbered.map(move |(at, value)| make(value).map_err(|wrong| wrong.within(&format!("[{at}]"))))
}

fn number(base: Base, json: &Json, out: &mut Vec<u8>) -> Result<(), Wrong> {
    match base {
        Base::Bool => boolean(json)?.put(out),
        Base::F32 => {
            let (wide, narrow) = (double(json)?, double(json)? as f32);
            if wide.is_finite() != narrow.is_finite() {
                return Err(Wrong::expected("a number that 32 bits hold", json));
            }
            narrow.put(out);
        }
        Base::F64 => double(json)?.put(out),
        Base::I8 => integer::<i8>(json)?.put(out),
        Base::I16 => integer::<i16>(json)?.put(out),
        Base::I32 => integer::<i32>(json)?.put(out),
        Base::I64 => integer::<i64>(json)?.put(out),
        Base::U8 => integer::<u8>(json)?.put(out),
        Base::U16 => integer::<u16>(json)?.put(out),
        Base::U32 => integer::<u32>(json)?.put(out),
        Base::U64 => integer::<u64>(json)?.put(out),
    }
    Ok(())
}
