//! Converts a FlatBuffers table to JSON. Offsets, lengths, depth and size are checked before they are used.

use super::{
    super::{json::name_of_double, metadata, thrift::For},
    Root, bytes_of, is_in_place,
    text::Text,
    type_name, union_of,
};
use switchboard_build::flatbuffers_interface::{Base, Enum, Field, Interface, Member, Type};
use switchboard_wire::flatbuffers::{Inline, Malformed, Position, Table, read_with};

/// The form of JSON output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// On one line.
    compact: bool,
    /// With the defaults of missing numbers and enums.
    defaults: bool,
    /// Vectors of bytes are base64.
    base64: bool,
    whom: For,
}

impl Look {
    pub(crate) const fn for_people(compact: bool, defaults: bool) -> Look {
        Look { compact, defaults, base64: false, whom: For::People }
    }

    pub(crate) const fn for_programs() -> Look {
        Look { compact: true, defaults: true, base64: false, whom: For::Programs }
    }

    /// For protobuf messages, whose JSON has bytes in base64.
    pub(crate) const fn for_protobuf() -> Look {
        Look { base64: true, ..Look::for_programs() }
    }
}

impl Root<'_> {
    /// Converts a message to JSON.
    ///
    /// # Errors
    /// Bytes that are not such a table, or take more than `bytes_max` as JSON.
    pub(crate) fn read(self, message: &[u8], look: Look, bytes_max: usize) -> Result<String, Malformed> {
        let tables = Tables { interface: self.interface, look };
        read_with(message, |position| {
            let mut text = Text::new(look.compact, bytes_max);
            tables.table(self.table, position, &mut text)?;
            Ok(text.finish())
        })
    }
}

struct Tables<'a> {
    interface: &'a Interface,
    look: Look,
}

impl Tables<'_> {
    fn table(&self, at: usize, position: Position<'_>, out: &mut Text) -> Result<(), Malformed> {
        let item = &self.interface.tables[at];
        let table = position.table_of(0)?;
        out.open('{');
        for field in &item.fields {
            let name = &field.name;
            let there = self.field(field, &table, out).map_err(|error| error.in_field(name))?;
            if field.required && !there {
                return Err(Malformed::missing(&format!("{}.{name}", item.name)));
            }
            if let Type::Vector(item) = &field.ty
                && !there
                && self.is_for_programs()
            {
                out.field(name)?;
                self.empty(item, out);
            }
        }
        out.close('}');
        Ok(())
    }

    /// Writes a field of a table; returns whether it is present.
    fn field(&self, field: &Field, table: &Table<'_>, out: &mut Text) -> Result<bool, Malformed> {
        let name = &field.name;
        match (&field.ty, union_of(&field.ty)) {
            (Type::Union(_), Some(union)) => self.union(union, table, field.number, name, out),
            (_, Some(union)) => self.unions(union, table, field.number, name, out),
            (ty, _) if is_in_place(ty) => {
                let (size, _) = self.interface.layout(ty);
                let found = table.bytes(field.number, size)?;
                let default = field.default.filter(|_| self.look.defaults);
                let default = default.map(|default| bytes_of(default, size));
                let shown = found.or(default.as_deref());
                if let Some(bytes) = shown {
                    out.field(name)?;
                    self.in_place(ty, bytes, out)?;
                }
                Ok(shown.is_some())
            }
            (ty, _) => match table.position(field.number)? {
                Some(position) => {
                    out.field(name)?;
                    self.value(ty, position, out)?;
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }

    fn is_for_programs(&self) -> bool {
        self.look.whom == For::Programs
    }

    /// Writes a union, or only the number of an unknown member; returns whether the union is present.
    fn union(
        &self,
        union: usize,
        table: &Table<'_>,
        number: usize,
        name: &str,
        out: &mut Text,
    ) -> Result<bool, Malformed> {
        let tag = table.bytes(number - 1, 1)?.map_or(0, u8::take);
        let Some(position) = table.position(number)?.filter(|_| tag > 0) else { return Ok(false) };
        if self.is_for_programs() {
            if let Some(member) = self.member(union, tag) {
                out.field(name)?;
                self.variant(member, position, out)?;
            }
            return Ok(true);
        }
        out.field(&type_name(name))?;
        if let Some(member) = self.tag(union, tag, out) {
            out.field(name)?;
            self.table(member, position, out)?;
        }
        Ok(true)
    }

    /// Writes a union in the form of generated code.
    fn variant(&self, member: &Member, position: Position<'_>, out: &mut Text) -> Result<(), Malformed> {
        out.open('{');
        out.field(&member.variant)?;
        self.table(member.table, position, out)?;
        out.close('}');
        Ok(())
    }

    /// Writes a vector of unions; see [`union`](Self::union). Unknown members are null for people, and omitted for
    /// programs.
    fn unions(
        &self,
        union: usize,
        table: &Table<'_>,
        number: usize,
        name: &str,
        out: &mut Text,
    ) -> Result<bool, Malformed> {
        let Some(values) = table.position(number)? else { return Ok(false) };
        let tags =
            table.position(number - 1)?.map(|position| position.items(1)).transpose()?.unwrap_or_default();
        let values = values.positions()?;
        if tags.len() != values.len() {
            let text = format!("there are {} unions and {} numbers of them", values.len(), tags.len());
            return Err(Malformed::new(text));
        }
        if self.is_for_programs() {
            out.field(name)?;
            out.open('[');
            for (index, (tag, position)) in tags.iter().zip(values).enumerate() {
                match self.member(union, *tag) {
                    Some(member) => {
                        out.item()?;
                        let written = position.and_then(|position| self.variant(member, position, out));
                        written.map_err(|error| error.in_item(index))?;
                    }
                    None => out.skip()?,
                }
            }
            out.close(']');
            return Ok(true);
        }
        out.field(&type_name(name))?;
        out.open('[');
        let mut members = Vec::with_capacity(tags.len());
        for tag in tags {
            out.item_beside()?;
            members.push(self.tag(union, *tag, out));
        }
        out.close_beside();
        out.field(name)?;
        out.open('[');
        for (index, (value, member)) in values.zip(members).enumerate() {
            out.item()?;
            match member {
                Some(member) => {
                    let written = value.and_then(|value| self.table(member, value, out));
                    written.map_err(|error| error.in_item(index))?;
                }
                None => out.plain("null"),
            }
        }
        out.close(']');
        Ok(true)
    }

    /// Writes the name of a member of a union, or its number; returns its table, if the member is known.
    fn tag(&self, union: usize, tag: u8, out: &mut Text) -> Option<usize> {
        let Some(member) = self.member(union, tag) else {
            out.plain(tag);
            return None;
        };
        out.quoted(&member.name);
        Some(member.table)
    }

    fn member(&self, union: usize, tag: u8) -> Option<&Member> {
        let at = usize::from(tag).checked_sub(1)?;
        self.interface.unions[union].members.get(at)
    }

    fn value(&self, ty: &Type, position: Position<'_>, out: &mut Text) -> Result<(), Malformed> {
        match ty {
            Type::String => out.quoted(position.text()?),
            Type::Table(at) => self.table(*at, position, out)?,
            Type::Vector(item) => self.vector(item, position, out)?,
            _ => unreachable!("nothing refers to it"),
        }
        Ok(())
    }

    fn empty(&self, item: &Type, out: &mut Text) {
        if self.is_base64(item) {
            return out.quoted("");
        }
        out.open('[');
        out.close_beside();
    }

    fn is_base64(&self, item: &Type) -> bool {
        *item == Type::Base(Base::U8) && self.look.base64
    }

    fn vector(&self, item: &Type, position: Position<'_>, out: &mut Text) -> Result<(), Malformed> {
        if self.is_base64(item) {
            out.quoted(&metadata::base64(position.items(1)?));
            return Ok(());
        }
        out.open('[');
        if !is_in_place(item) {
            for (index, position) in position.positions()?.enumerate() {
                out.item()?;
                let written = position.and_then(|position| self.value(item, position, out));
                written.map_err(|error| error.in_item(index))?;
            }
            out.close(']');
            return Ok(());
        }
        let (size, _) = self.interface.layout(item);
        self.list(item, position.items(size)?, out)
    }

    /// Writes the items of an open list, and its end.
    fn list(&self, item: &Type, bytes: &[u8], out: &mut Text) -> Result<(), Malformed> {
        let is_object = matches!(item, Type::Struct(_));
        for bytes in bytes.chunks_exact(self.interface.layout(item).0) {
            if is_object {
                out.item()?;
            } else {
                out.item_beside()?;
            }
            self.in_place(item, bytes, out)?;
        }
        if is_object {
            out.close(']');
        } else {
            out.close_beside();
        }
        Ok(())
    }

    fn in_place(&self, ty: &Type, bytes: &[u8], out: &mut Text) -> Result<(), Malformed> {
        match ty {
            Type::Array(item, len) => {
                out.open('[');
                self.list(item, &bytes[..len * self.interface.layout(item).0], out)?;
            }
            Type::Base(base) => number(*base, bytes, out),
            Type::Enum(at) => self.named(*at, bytes, out),
            Type::Struct(at) => {
                out.open('{');
                for field in &self.interface.structs[*at].fields {
                    out.field(&field.name)?;
                    self.in_place(&field.ty, &bytes[field.at..], out)?;
                }
                out.close('}');
            }
            Type::String | Type::Table(_) | Type::Union(_) | Type::Vector(_) => {
                unreachable!("others refer to it")
            }
        }
        Ok(())
    }

    /// Writes a value by its name, or by its number if the name is unknown.
    fn named(&self, at: usize, bytes: &[u8], out: &mut Text) {
        let item = &self.interface.enums[at];
        let value = whole(item.base, bytes);
        if self.is_for_programs() {
            return out.plain(value);
        }
        let found = item.members.iter().find(|(_, number)| i128::from(*number) == value);
        if let Some((name, _)) = found {
            return out.quoted(name);
        }
        match i64::try_from(value).ok().and_then(|value| bits_of(item, value)) {
            Some(names) => out.quoted(&names.join(" ")),
            None => out.plain(value),
        }
    }
}

/// Returns the members whose bits a value has; `None` if the value has other bits too.
fn bits_of(item: &Enum, value: i64) -> Option<Vec<&str>> {
    let within = item.members.iter().filter(|(_, bit)| value & bit != 0);
    let all = within.clone().fold(0, |all, (_, bit)| all | bit);
    (item.are_bits && all == value && value != 0).then(|| within.map(|(name, _)| &**name).collect())
}

/// Reads an integer.
fn whole(base: Base, bytes: &[u8]) -> i128 {
    match base {
        Base::I8 => i8::take(bytes).into(),
        Base::I16 => i16::take(bytes).into(),
        Base::I32 => i32::take(bytes).into(),
        Base::I64 => i64::take(bytes).into(),
        Base::Bool | Base::U8 => u8::take(bytes).into(),
        Base::U16 => u16::take(bytes).into(),
        Base::U32 => u32::take(bytes).into(),
        Base::U64 => u64::take(bytes).into(),
        Base::F32 | Base::F64 => unreachable!("enums are of whole numbers"),
    }
}

fn number(base: Base, bytes: &[u8], out: &mut Text) {
    // A 32-bit number has a shorter decimal form than the same number in 64 bits.
    let (value, short) = match base {
        Base::Bool => return out.plain(bool::take(bytes)),
        Base::F32 => (f32::take(bytes).into(), format!("{:?}", f32::take(bytes))),
        Base::F64 => (f64::take(bytes), format!("{:?}", f64::take(bytes))),
        _ => return out.plain(whole(base, bytes)),
    };
    match name_of_double(value) {
        Some(name) => out.quoted(name),
        None => out.plain(short),
    }
}
