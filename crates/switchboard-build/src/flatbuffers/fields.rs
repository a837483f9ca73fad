//! Numbers and defaults of the fields of tables.

use super::{
    ast::{Base, Field, Item, Kind},
    parser,
    schema::{Resolved, Schema},
};
use crate::{Error, lexer::Token};
use std::collections::BTreeMap;

/// A field that is not deprecated.
pub(super) struct Numbered<'a> {
    pub(super) field: &'a Field,
    pub(super) ty: Resolved<'a>,
    /// Number of the field in the table. The number of the tag of a union, or of the vector of tags, is one less.
    pub(super) number: usize,
    /// Size in the table, in bytes.
    pub(super) size: usize,
    /// Default of a number or enum; `None` if the field is optional.
    pub(super) default: Option<DefaultValue<'a>>,
}

/// Value of a missing field.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultValue<'a> {
    Bool(bool),
    Float(f64),
    Int(i64),
    /// A member of an enum, and its number.
    Member(&'a str, i64),
}

impl Schema {
    /// Returns the fields of a table that are not deprecated, with their numbers, which count deprecated fields too.
    ///
    /// # Errors
    /// Returns an error for invalid types and defaults, duplicate numbers, and a table that is too large.
    pub(super) fn numbered<'a>(
        &'a self,
        item: &Item,
        fields: &'a [Field],
    ) -> Result<Vec<Numbered<'a>>, Error> {
        let (mut numbered, mut names) = (Vec::new(), BTreeMap::new());
        let (mut next, mut size) = (0, 4);
        for field in fields {
            let wrong = |what: &str| Error::new(format!("{}: {} {what}", field.place, field.name));
            let ty = self.resolve(&item.namespace, &field.ty, &field.place)?;
            // The tag of a union, or the vector of tags, has the number before it.
            let has_tag = ty.is_union() || ty.is_union_vector();
            next += usize::from(has_tag);
            let number = match field.attributes.int("id") {
                None => next,
                Some(id) => usize::try_from(id)
                    .ok()
                    .filter(|id| *id < 4096)
                    .ok_or_else(|| wrong("has an id that is not a field number"))?,
            };
            next = number + 1;
            if field.attributes.has("deprecated") {
                continue;
            }
            if has_tag && number == 0 {
                return Err(wrong("is a union, whose id must be one more than that of its tag"));
            }
            if let Resolved::Array(..) = ty {
                return Err(wrong("is an array, which only structs can have: make it a vector"));
            }
            let has_default =
                matches!(ty, Resolved::Base(_) | Resolved::Item(Item { kind: Kind::Enum { .. }, .. }));
            if !has_default && field.default.is_some() {
                return Err(wrong("has a default, which only numbers and enums can have"));
            }
            let default = if has_default { default(&ty, field)? } else { None };
            let in_place = match ty.is_union_vector() {
                true => 8,
                false => self.layout(&ty)?.map_or(4, |(size, _)| size),
            };
            size += in_place.next_multiple_of(8);
            for taken in number - usize::from(has_tag)..=number {
                if let Some(other) = names.insert(taken, &field.name) {
                    return Err(wrong(&format!("has the id of {other}")));
                }
            }
            numbered.push(Numbered { field, ty, number, size: in_place, default });
        }
        if size > usize::from(u16::MAX) {
            return Err(Error::new(format!(
                "{}: table {} may take more than 65535 bytes",
                item.place, item.name
            )));
        }
        Ok(numbered)
    }
}

/// Returns the default of a number or enum; `None` if the field is optional.
fn default<'a>(ty: &Resolved<'a>, field: &Field) -> Result<Option<DefaultValue<'a>>, Error> {
    let wrong =
        || Error::new(format!("{}: the default does not fit the type of {}", field.place, field.name));
    let number = match (ty, &field.default) {
        (_, Some(Token::Name(name))) if name == "null" => return Ok(None),
        (Resolved::Item(Item { kind: Kind::Enum { members, .. }, .. }), Some(Token::Name(name))) => {
            let bare = name.rsplit_once('.').map_or(name.as_str(), |(_, name)| name);
            let member = members.iter().find(|(known, ..)| known == bare);
            return member
                .map(|(name, number, _)| Some(DefaultValue::Member(name, *number)))
                .ok_or_else(wrong);
        }
        (Resolved::Base(base) | Resolved::Item(Item { kind: Kind::Enum { base, .. }, .. }), _) => *base,
        _ => return Err(wrong()),
    };
    Ok(Some(match (&field.default, number) {
        (None, Base::Bool) => DefaultValue::Bool(false),
        (None, _) if number.is_float() => DefaultValue::Float(0.0),
        (None, _) => DefaultValue::Int(0),
        (Some(Token::Int(value)), Base::Bool) if parser::fits(number, *value) => {
            DefaultValue::Bool(*value == 1)
        }
        (Some(Token::Int(value)), _) if number.is_float() => DefaultValue::Float(*value as f64),
        (Some(Token::Int(value)), _) if parser::fits(number, *value) => DefaultValue::Int(*value),
        (Some(Token::Double(value)), _) if number.is_float() && value.is_finite() => {
            DefaultValue::Float(*value)
        }
        (Some(Token::Name(name)), Base::Bool) if name == "true" || name == "false" => {
            DefaultValue::Bool(name == "true")
        }
        (Some(Token::Name(name)), _) if number.is_float() && name == "nan" => DefaultValue::Float(f64::NAN),
        (Some(Token::Name(name)), _) if number.is_float() && name == "inf" => {
            DefaultValue::Float(f64::INFINITY)
        }
        _ => return Err(wrong()),
    }))
}
