//! The struct of a method's result to JSON, or to the status of an exception.

use super::{
    super::{json::name_of_double, metadata},
    Function, on_the_wire,
};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use switchboard::{Code, Origin, Status};
use switchboard_build::interface::{Field, Interface, Struct, Type};
use switchboard_wire::thrift::{self, Malformed, Reader, Uuid, Value};

impl Function {
    /// What the method returned; null for `void`.
    ///
    /// # Errors
    /// The exception that it threw, and `Internal` for bytes that are no result of it.
    pub(crate) fn read(&self, result: &Bytes) -> Result<Json, Status> {
        let read = self.read_result(result);
        read.map_err(|malformed| {
            Status::internal(format!("the reply is no result of {}: {malformed}", self.path))
        })?
    }

    fn read_result(&self, result: &Bytes) -> Result<Result<Json, Status>, Malformed> {
        let (mut input, interface) = (Reader::new(result), &*self.interface);
        let mut outcome = match self.method.returns {
            Some(_) => Err(Status::internal(format!(
                "the result of {} has neither a value nor an exception that the file declares",
                self.path
            ))),
            None => Ok(Json::Null),
        };
        input.enter()?;
        while let Some((kind, id)) = input.field()? {
            let throw = self.method.throws.iter().find(|throw| throw.id == id).map(|throw| &throw.ty);
            match (throw, &self.method.returns) {
                (None, Some(ty)) if id == 0 && on_the_wire(ty) == kind => {
                    outcome = Ok(value(interface, ty, &mut input)?);
                }
                (Some(ty @ Type::Struct(at)), _) if on_the_wire(ty) == kind => {
                    let thrown = value(interface, ty, &mut input)?;
                    outcome = Err(exception(&interface.structs[*at], &thrown));
                }
                _ => input.skip(kind)?,
            }
        }
        Ok(outcome)
    }
}

/// The status that a server of ours gives to the exception on wires that have statuses.
fn exception(item: &Struct, thrown: &Json) -> Status {
    let named = |code: &Code| item.code.as_deref() == Some(code.name());
    let code = Code::ALL.into_iter().find(named).unwrap_or(Code::FailedPrecondition);
    Status::new(code, format!("{} {thrown}", item.name)).with_origin(Origin::Peer)
}

fn value(interface: &Interface, ty: &Type, input: &mut Reader<'_>) -> Result<Json, Malformed> {
    Ok(match ty {
        Type::Bool => bool::read(input)?.into(),
        Type::I8 => i8::read(input)?.into(),
        Type::I16 => i16::read(input)?.into(),
        Type::I32 => i32::read(input)?.into(),
        Type::I64 => i64::read(input)?.into(),
        Type::Enum(at) => {
            let number = i32::read(input)?;
            let member = interface.enums[*at].members.iter().find(|(_, known)| *known == number);
            member.map_or_else(|| number.into(), |(name, _)| name.as_str().into())
        }
        Type::Double => {
            let number = f64::read(input)?;
            name_of_double(number).map_or_else(|| number.into(), Json::from)
        }
        Type::String => String::read(input)?.into(),
        Type::Uuid => Uuid::read(input)?.to_string().into(),
        Type::Binary => metadata::base64(&Bytes::read(input)?).into(),
        Type::Struct(at) => fields(interface, &interface.structs[*at].fields, input)?,
        Type::List(element) | Type::Set(element) => list(interface, element, input)?,
        Type::Map(key, held) => map(interface, key, held, input)?,
    })
}

fn fields(interface: &Interface, fields: &[Field], input: &mut Reader<'_>) -> Result<Json, Malformed> {
    let mut object = Map::new();
    input.enter()?;
    while let Some((kind, id)) = input.field()? {
        let field = fields.iter().find(|field| field.id == id && on_the_wire(&field.ty) == kind);
        match field {
            Some(field) => drop(object.insert(field.name.clone(), value(interface, &field.ty, input)?)),
            None => input.skip(kind)?,
        }
    }
    input.leave();
    Ok(object.into())
}

fn list(interface: &Interface, element: &Type, input: &mut Reader<'_>) -> Result<Json, Malformed> {
    input.enter()?;
    let (kind, count) = input.list()?;
    check(&[(kind, element)], count)?;
    let values = (0..count).map(|_| value(interface, element, input)).collect::<Result<Vec<_>, _>>()?;
    input.leave();
    Ok(values.into())
}

fn map(interface: &Interface, key: &Type, held: &Type, input: &mut Reader<'_>) -> Result<Json, Malformed> {
    input.enter()?;
    let ([key_kind, kind], count) = input.map()?;
    check(&[(key_kind, key), (kind, held)], count)?;
    let pair = |_| Ok((value(interface, key, input)?, value(interface, held, input)?));
    let pairs = (0..count).map(pair).collect::<Result<Vec<(Json, Json)>, Malformed>>()?;
    input.leave();
    let has_names = !matches!(key, Type::List(_) | Type::Map(..) | Type::Set(_) | Type::Struct(_));
    Ok(match has_names {
        true => pairs.into_iter().map(|(key, held)| (name_of(key), held)).collect::<Map<_, _>>().into(),
        false => pairs.into_iter().map(|(key, held)| Json::Array(vec![key, held])).collect(),
    })
}

/// A key as JSON has it.
fn name_of(key: Json) -> String {
    match key {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

/// Elements of other types than the file says are skipped by libraries of Thrift; who asks wants to know.
fn check(kinds: &[(thrift::Type, &Type)], count: usize) -> Result<(), Malformed> {
    match kinds.iter().find(|(kind, ty)| count > 0 && *kind != on_the_wire(ty)) {
        None => Ok(()),
        Some((kind, ty)) => {
            Err(Malformed(format!("elements of type {} where the file has {ty:?}", kind.0).into()))
        }
    }
}
