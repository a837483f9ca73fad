//! What Thrift writes to JSON: the struct of a method's result, or of its arguments.

use super::{super::metadata, Function, on_the_wire};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use switchboard::{Code, Origin, Status};
use switchboard_build::interface::{Field, Interface, Struct, Type};
use switchboard_wire::thrift::{self, Malformed, Reader, Uuid, Value};

/// What the struct of a result holds.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// What the method returned; null for `void`.
    Value(Json),
    Thrown(Thrown),
    /// Neither of them.
    Nothing,
}

/// An exception.
#[derive(Debug)]
pub(crate) struct Thrown {
    /// Its type, with the package.
    pub(crate) name: String,
    /// Its fields.
    pub(crate) fields: Json,
    code: Code,
    text: String,
    /// Its struct in the binary protocol.
    bytes: Bytes,
}

impl Function {
    /// What the method returned; null for `void`.
    ///
    /// # Errors
    /// The exception that it threw, and `Internal` for bytes that are no result of it.
    pub(crate) fn read(&self, result: &Bytes) -> Result<Json, Status> {
        match self.read_result(result)? {
            Outcome::Value(value) => Ok(value),
            Outcome::Thrown(Thrown { name, fields, code, .. }) => {
                Err(Status::new(code, format!("{name} {fields}")).with_origin(Origin::Peer))
            }
            Outcome::Nothing => Err(self.nothing()),
        }
    }

    /// What a result holds.
    ///
    /// # Errors
    /// `Internal` for bytes that are no result of the method.
    pub(crate) fn read_result(&self, result: &Bytes) -> Result<Outcome, Status> {
        self.outcome(result).map_err(|malformed| {
            Status::internal(format!("the reply is no result of {}: {malformed}", self.path))
        })
    }

    fn outcome(&self, result: &Bytes) -> Result<Outcome, Malformed> {
        let (mut input, interface) = (Reader::new(result), &*self.interface);
        let mut outcome = match self.method.returns {
            Some(_) => Outcome::Nothing,
            None => Outcome::Value(Json::Null),
        };
        input.enter()?;
        while let Some((kind, id)) = input.field()? {
            let throw = self.method.throws.iter().find(|throw| throw.id == id).map(|throw| &throw.ty);
            match (throw, &self.method.returns) {
                (None, Some(ty)) if id == 0 && on_the_wire(ty) == kind => {
                    outcome = Outcome::Value(value(interface, ty, &mut input)?);
                }
                (Some(ty @ Type::Struct(at)), _) if on_the_wire(ty) == kind => {
                    let rest = input.rest();
                    let fields = value(interface, ty, &mut input)?;
                    let bytes = rest.slice(..rest.len() - input.left());
                    outcome = Outcome::Thrown(Thrown::new(&interface.structs[*at], fields, bytes));
                }
                _ => input.skip(kind)?,
            }
        }
        Ok(outcome)
    }

    /// The arguments by their names.
    ///
    /// # Errors
    /// Bytes that are no arguments of the method.
    pub(crate) fn read_arguments(&self, arguments: &Bytes) -> Result<Json, Malformed> {
        fields(&self.interface, &self.method.arguments, &mut Reader::new(arguments))
    }

    /// The status for a result that says nothing.
    pub(crate) fn nothing(&self) -> Status {
        Status::internal(format!(
            "the result of {} has neither a value nor an exception that the file declares",
            self.path
        ))
    }
}

impl Thrown {
    fn new(item: &Struct, fields: Json, bytes: Bytes) -> Thrown {
        let named = |code: &Code| item.code.as_deref() == Some(code.name());
        let code = Code::ALL.into_iter().find(named).unwrap_or(Code::FailedPrecondition);
        let text = item.text().and_then(|field| fields.get(&field.name)?.as_str());
        let short = item.name.rsplit('.').next().unwrap_or_default();
        let text = text.filter(|text| !text.is_empty()).unwrap_or(short).to_owned();
        Thrown { name: item.name.clone(), fields, code, text, bytes }
    }

    /// The status that a server of ours gives to the exception on wires that have statuses.
    pub(crate) fn status(self) -> Status {
        Status::new(self.code, self.text).with_detail(self.name, self.bytes).with_origin(Origin::Peer)
    }
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
            // JSON has no such numbers.
            let named = if number.is_nan() {
                "NaN"
            } else if number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            if number.is_finite() { number.into() } else { named.into() }
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
