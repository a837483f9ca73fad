//! JSON to a table of FlatBuffers.

use super::{
    super::{
        json::{Wrong, base64, boolean, double, integer, list, object, text},
        names::instead,
    },
    Procedure, bytes_of, is_in_place, type_name, union_of,
};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use std::cmp::Reverse;
use switchboard_build::flatbuffers_interface::{Base, Field, Interface, Type};
use switchboard_wire::flatbuffers::{Inline, Writer};

impl Procedure {
    /// The table of a request that an object has.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub(in crate::call) fn write(&self, json: &Json) -> Result<Bytes, String> {
        let tables = Tables(&self.interface);
        let written = Writer::message(|out| tables.table(self.method.request, json, out));
        let bytes = written.map_err(Wrong::said)?;
        match i32::try_from(bytes.len()) {
            Ok(_) => Ok(bytes.into()),
            Err(_) => Err(format!("{} bytes are over the limit of FlatBuffers, 2 GiB", bytes.len())),
        }
    }
}

/// What a table has of a field.
enum Part<'a> {
    /// Bytes in the table.
    InPlace(Vec<u8>),
    /// A vector of bytes: the numbers of unions.
    Tags(Vec<u8>),
    /// A vector of the tables that these numbers mean.
    Unions(Vec<usize>, &'a [Json]),
    Value(Type, &'a Json),
}

/// A part, and where it goes.
struct Placed<'a> {
    /// In the table.
    number: usize,
    align: usize,
    /// Of the field, for messages.
    name: &'a str,
    part: Part<'a>,
}

impl<'a> Placed<'a> {
    /// What the field refers to.
    fn offset(field: &'a Field, number: usize, part: Part<'a>) -> Placed<'a> {
        Placed { number, align: 4, name: &field.name, part }
    }
}

struct Tables<'a>(&'a Interface);

impl<'a> Tables<'a> {
    /// Appends a table; its position.
    fn table(&self, at: usize, json: &Json, out: &mut Writer) -> Result<usize, Wrong> {
        let mut parts = self.parts(at, json)?;
        // The widest first, which leaves no gaps.
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
        for (slot, name, part) in slots {
            let at = self.referred(&part, out).map_err(|wrong| wrong.within(&format!(".{name}")))?;
            out.point_at(slot, at);
        }
        Ok(table)
    }

    /// What there is of the fields of a table.
    fn parts<'j>(&self, at: usize, json: &'j Json) -> Result<Vec<Placed<'j>>, Wrong>
    where
        'a: 'j,
    {
        let table = &self.0.tables[at];
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

    /// A field that is no union.
    fn plain<'j>(
        &self,
        field: &'j Field,
        object: &'j Map<String, Json>,
        placed: &mut Vec<Placed<'j>>,
    ) -> Result<(), Wrong> {
        let Some(value) = present(object, &field.name) else { return Ok(()) };
        if !is_in_place(&field.ty) {
            placed.push(Placed::offset(field, field.number, Part::Value(field.ty.clone(), value)));
            return Ok(());
        }
        let mut bytes = Vec::new();
        let written = self.in_place(&field.ty, value, &mut bytes);
        written.map_err(|wrong| wrong.within(&format!(".{}", field.name)))?;
        let is_default = |default| bytes_of(default, bytes.len()) == bytes;
        if field.required || !field.default.is_some_and(is_default) {
            let (_, align) = self.0.layout(&field.ty);
            placed.push(Placed {
                number: field.number,
                align,
                name: &field.name,
                part: Part::InPlace(bytes),
            });
        }
        Ok(())
    }

    /// A union or a vector of them, and what says which they are.
    fn union<'j>(
        &self,
        table: &str,
        field: &'j Field,
        union: usize,
        object: &'j Map<String, Json>,
        placed: &mut Vec<Placed<'j>>,
    ) -> Result<(), Wrong> {
        let (name, number, kind_name) = (&*field.name, field.number, type_name(&field.name));
        let kind = present(object, &kind_name).filter(|kind| *kind != "NONE");
        let (kind, value) = match (kind, present(object, name)) {
            (None, None) => return Ok(()),
            (Some(kind), Some(value)) => (kind, value),
            (Some(_), None) => return Err(Wrong::new(format!("{table} has {kind_name} and no {name}"))),
            (None, Some(_)) => {
                let members = self.0.unions[union].members.iter().map(|(name, _)| &**name);
                let members = members.collect::<Vec<_>>().join(", ");
                return Err(Wrong::new(format!("{table} has {name} and no {kind_name}: {members}")));
            }
        };
        let in_kind = |wrong: Wrong| wrong.within(&format!(".{kind_name}"));
        if let Type::Union(_) = field.ty {
            let (tag, member) = self.member(union, kind).map_err(in_kind)?;
            placed.push(Placed { number: number - 1, align: 1, name, part: Part::InPlace(vec![tag]) });
            placed.push(Placed::offset(field, number, Part::Value(Type::Table(member), value)));
            return Ok(());
        }
        let members = list(kind)
            .and_then(|kinds| each(kinds, |kind| self.member(union, kind)).collect::<Result<Vec<_>, _>>());
        let (tags, tables): (_, Vec<_>) = members.map_err(in_kind)?.into_iter().unzip();
        let values = list(value).map_err(|wrong| wrong.within(&format!(".{name}")))?;
        if tables.len() != values.len() {
            let (types, values) = (tables.len(), values.len());
            return Err(Wrong::new(format!("{table} has {values} in {name} and {types} in {kind_name}")));
        }
        placed.push(Placed::offset(field, number - 1, Part::Tags(tags)));
        placed.push(Placed::offset(field, number, Part::Unions(tables, values)));
        Ok(())
    }

    /// Appends what a field refers to; its position.
    fn referred(&self, part: &Part<'_>, out: &mut Writer) -> Result<usize, Wrong> {
        match part {
            Part::InPlace(_) => unreachable!("it is in the table"),
            Part::Tags(tags) => Ok(out.items(tags.len(), 1, tags)),
            Part::Unions(tables, values) => out.places(values.len(), |out, at| {
                let written = self.table(tables[at], &values[at], out);
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
        if let (Type::Base(Base::U8), Json::String(text)) = (item, json) {
            let bytes = base64(text)?;
            return Ok(out.items(bytes.len(), 1, &bytes));
        }
        let values = list(json)?;
        if is_in_place(item) {
            let mut bytes = Vec::new();
            each(values, |value| self.in_place(item, value, &mut bytes)).collect::<Result<(), _>>()?;
            return Ok(out.items(values.len(), self.0.layout(item).1, &bytes));
        }
        out.places(values.len(), |out, at| {
            self.value(item, &values[at], out).map_err(|wrong| wrong.within(&format!("[{at}]")))
        })
    }

    /// Appends what lies in place.
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
                number(self.0.enums[*at].base, member, out)
            }
            Type::Struct(at) => {
                let item = &self.0.structs[*at];
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

    /// The number of a member, or of several with spaces between.
    fn named(&self, at: usize, names: &str) -> Result<i64, Wrong> {
        let item = &self.0.enums[at];
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

    /// The number and the table of the member of a union that goes by this name or number.
    fn member(&self, union: usize, json: &Json) -> Result<(u8, usize), Wrong> {
        let union = &self.0.unions[union];
        let mut members = (1u8..).zip(&union.members);
        let found = members.find(|(tag, (name, _))| json == name.as_str() || json == *tag);
        found.map(|(tag, (_, table))| (tag, *table)).ok_or_else(|| match json.as_str() {
            Some(typed) => {
                let known = instead(typed, union.members.iter().map(|(name, _)| &**name));
                Wrong::new(format!("{} has no {typed}{known}", union.name))
            }
            None => Wrong::expected(&format!("the name of a member of {}", union.name), json),
        })
    }
}

/// A value that is said; null is as good as none.
fn present<'a>(object: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    object.get(name).filter(|value| !value.is_null())
}

/// Names that something of this name does not have are mistakes.
fn only(name: &str, object: &Map<String, Json>, known: &[impl AsRef<str>]) -> Result<(), Wrong> {
    let unknown = object.keys().find(|key| !known.iter().any(|name| name.as_ref() == **key));
    let Some(unknown) = unknown else { return Ok(()) };
    let known = instead(unknown, known.iter().map(AsRef::as_ref));
    Err(Wrong::new(format!("{name} has no {unknown:?}{known}")))
}

/// What becomes of each value; mistakes say in which.
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
