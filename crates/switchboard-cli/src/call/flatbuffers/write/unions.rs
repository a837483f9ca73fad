//! Unions in JSON, in both forms: that of `flatc`, and that of generated code.

use super::{
    super::{
        super::{
            json::{Wrong, list},
            names::instead,
        },
        type_name,
    },
    Part, Placed, Tables, each, present,
};
use serde_json::{Map, Value as Json};
use switchboard_build::flatbuffers_interface::{Field, Member, Type};

/// Types of unions, their tables and their values.
type Variants<'a> = (Vec<u8>, Vec<usize>, Vec<&'a Json>);

impl Tables<'_> {
    /// Returns the parts of a union or a vector of unions, and of their types.
    pub(super) fn union<'j>(
        &self,
        table: &str,
        field: &'j Field,
        union: usize,
        object: &'j Map<String, Json>,
        placed: &mut Vec<Placed<'j>>,
    ) -> Result<(), Wrong> {
        let Some((tags, tables, values)) = self.chosen(table, field, union, object)? else { return Ok(()) };
        if present(object, &field.name).is_some_and(|value| self.leaves_out(field, value)) {
            return Ok(());
        }
        let (name, number) = (&*field.name, field.number);
        if let Type::Union(_) = field.ty {
            placed.push(Placed { number: number - 1, align: 1, name, part: Part::InPlace(tags) });
            let part = Part::Value(Type::Table(tables[0]), values[0]);
            placed.push(Placed::offset(field, number, part));
        } else {
            placed.push(Placed::offset(field, number - 1, Part::Tags(tags)));
            placed.push(Placed::offset(field, number, Part::Unions(tables, values)));
        }
        Ok(())
    }

    /// Returns the unions of such a field: one for a union, none if it is missing.
    fn chosen<'j>(
        &self,
        table: &str,
        field: &Field,
        union: usize,
        object: &'j Map<String, Json>,
    ) -> Result<Option<Variants<'j>>, Wrong> {
        let (name, kind_name) = (&*field.name, type_name(&field.name));
        let kind = present(object, &kind_name).filter(|kind| *kind != "NONE");
        let (kind, value) = match (kind, present(object, name)) {
            (None, None) => return Ok(None),
            (Some(kind), Some(value)) => (kind, value),
            (Some(_), None) => return Err(Wrong::new(format!("{table} has {kind_name} and no {name}"))),
            (None, Some(value)) => {
                let members = &self.interface.unions[union].members;
                let known = || members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(", ");
                let variants = variants(members, &field.ty, value);
                let wrong = || Wrong::new(format!("{table} has {name} and no {kind_name}: {}", known()));
                return variants.map(Some).ok_or_else(wrong);
            }
        };
        let in_kind = |wrong: Wrong| wrong.within(&format!(".{kind_name}"));
        if let Type::Union(_) = field.ty {
            let (tag, member) = self.member(union, kind).map_err(in_kind)?;
            return Ok(Some((vec![tag], vec![member], vec![value])));
        }
        let members = list(kind)
            .and_then(|kinds| each(kinds, |kind| self.member(union, kind)).collect::<Result<Vec<_>, _>>());
        let (tags, tables): (_, Vec<_>) = members.map_err(in_kind)?.into_iter().unzip();
        let values = list(value).map_err(|wrong| wrong.within(&format!(".{name}")))?;
        if tables.len() != values.len() {
            let (types, values) = (tables.len(), values.len());
            return Err(Wrong::new(format!("{table} has {values} in {name} and {types} in {kind_name}")));
        }
        Ok(Some((tags, tables, values.iter().collect())))
    }

    /// Returns the number and the table of the member of a union with this name or number.
    fn member(&self, union: usize, json: &Json) -> Result<(u8, usize), Wrong> {
        let union = &self.interface.unions[union];
        let mut members = (1u8..).zip(&union.members);
        let found = members.find(|(tag, member)| json == member.name.as_str() || json == *tag);
        found.map(|(tag, member)| (tag, member.table)).ok_or_else(|| match json.as_str() {
            Some(typed) => {
                let known = instead(typed, union.members.iter().map(|member| &*member.name));
                Wrong::new(format!("{} has no {typed}{known}", union.name))
            }
            None => Wrong::expected(&format!("the name of a member of {}", union.name), json),
        })
    }
}

/// Reads one union or several in the form of generated code: objects whose only field is the member. Returns `None` for
/// another form.
fn variants<'j>(members: &[Member], ty: &Type, json: &'j Json) -> Option<Variants<'j>> {
    let one = |json: &'j Json| {
        let object = json.as_object().filter(|object| object.len() == 1)?;
        let (name, value) = object.iter().next()?;
        let known = |member: &Member| *name == member.variant || *name == member.name;
        let (tag, member) = (1u8..).zip(members).find(|(_, member)| known(member))?;
        Some((tag, (member.table, value)))
    };
    let all: Option<Vec<_>> = match ty {
        Type::Union(_) => one(json).map(|one| vec![one]),
        _ => json.as_array()?.iter().map(one).collect(),
    };
    let (tags, (tables, values)) = all?.into_iter().unzip::<_, _, _, (Vec<_>, Vec<_>)>();
    Some((tags, tables, values))
}
