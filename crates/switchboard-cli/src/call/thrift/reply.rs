//! Converts Thrift to JSON: the struct of a method's result, or of its arguments.

use super::{
    super::{json::name_of_double, metadata},
    Function, on_the_wire,
};
use bytes::Bytes;
use serde_json::{Map, Value as Json};
use switchboard::{Code, Origin, Status};
use switchboard_build::interface::{Field, Interface, Struct, Type};
use switchboard_wire::thrift::{self, Malformed, Reader, Uuid, Value};

/// The content of a result struct.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The value that the method returned; null for `void`.
    Value(Json),
    Thrown(Thrown),
    /// Neither a value nor an exception.
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
    /// Returns the value that the method returned; null for `void`.
    ///
    /// # Errors
    /// The exception that it threw, and `Internal` for bytes that are not a result of it.
    pub(crate) fn read(&self, result: &Bytes) -> Result<Json, Status> {
        match self.read_result(result, For::People)? {
            Outcome::Value(value) => Ok(value),
            Outcome::Thrown(Thrown { name, fields, code, .. }) => {
                Err(Status::new(code, format!("{name} {fields}")).with_origin(Origin::Peer))
            }
            Outcome::Nothing => Err(self.nothing()),
        }
    }

    /// Returns the content of a result.
    ///
    /// # Errors
    /// `Internal` for bytes that are not a result of the method.
    pub(crate) fn read_result(&self, result: &Bytes, whom: For) -> Result<Outcome, Status> {
        self.outcome(result, whom).map_err(|malformed| {
            Status::internal(format!("the reply is not a result of {}: {malformed}", self.path))
        })
    }

    fn outcome(&self, result: &Bytes, whom: For) -> Result<Outcome, Malformed> {
        let mut values = self.values(result, whom);
        let mut outcome = match self.method.returns {
            Some(_) => Outcome::Nothing,
            None => Outcome::Value(Json::Null),
        };
        values.input.enter()?;
        while let Some((kind, id)) = values.input.field()? {
            let throw = self.method.throws.iter().find(|throw| throw.id == id).map(|throw| &throw.ty);
            match (throw, &self.method.returns) {
                (None, Some(ty)) if id == 0 && on_the_wire(ty) == kind => {
                    outcome = Outcome::Value(values.value(ty)?);
                }
                (Some(ty @ Type::Struct(at)), _) if on_the_wire(ty) == kind => {
                    let rest = values.input.rest();
                    let fields = values.value(ty)?;
                    let bytes = rest.slice(..rest.len() - values.input.left());
                    outcome = Outcome::Thrown(Thrown::new(&self.interface.structs[*at], fields, bytes));
                }
                _ => values.input.skip(kind)?,
            }
        }
        Ok(outcome)
    }

    /// Returns the arguments by their names.
    ///
    /// # Errors
    /// Bytes that are not arguments of the method.
    pub(crate) fn read_arguments(&self, arguments: &Bytes, whom: For) -> Result<Json, Malformed> {
        self.values(arguments, whom).fields(&self.method.arguments)
    }

    fn values<'a>(&'a self, bytes: &'a Bytes, whom: For) -> Values<'a> {
        Values { interface: &self.interface, whom, input: Reader::new(bytes) }
    }

    /// Returns the status for an empty result.
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

    /// Returns the status that our servers use for the exception on wires that have statuses.
    pub(crate) fn status(self) -> Status {
        Status::new(self.code, self.text).with_detail(self.name, self.bytes).with_origin(Origin::Peer)
    }
}

/// The readers for whom JSON is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum For {
    /// Enums are the names of their members, and bytes base64.
    People,
    /// As generated clients and servers use it: enums and bytes are numbers.
    Programs,
}

/// Reads values as JSON.
struct Values<'a> {
    interface: &'a Interface,
    whom: For,
    input: Reader<'a>,
}

impl Values<'_> {
    fn value(&mut self, ty: &Type) -> Result<Json, Malformed> {
        let (interface, input) = (self.interface, &mut self.input);
        Ok(match ty {
            Type::Bool => bool::read(input)?.into(),
            Type::I8 => i8::read(input)?.into(),
            Type::I16 => i16::read(input)?.into(),
            Type::I32 => i32::read(input)?.into(),
            Type::I64 => i64::read(input)?.into(),
            Type::Enum(at) => {
                let number = i32::read(input)?;
                let member = interface.enums[*at].members.iter().find(|(_, known)| *known == number);
                let name = member.filter(|_| self.whom == For::People);
                name.map_or_else(|| number.into(), |(name, _)| name.as_str().into())
            }
            Type::Double => {
                let number = f64::read(input)?;
                name_of_double(number).map_or_else(|| number.into(), Json::from)
            }
            Type::String => String::read(input)?.into(),
            Type::Uuid => Uuid::read(input)?.to_string().into(),
            Type::Binary => {
                let bytes = Bytes::read(input)?;
                match self.whom {
                    For::People => metadata::base64(&bytes).into(),
                    For::Programs => bytes.iter().copied().collect(),
                }
            }
            Type::Struct(at) => self.fields(&interface.structs[*at].fields)?,
            Type::List(element) | Type::Set(element) => self.list(element)?,
            Type::Map(key, held) => self.map(key, held)?,
        })
    }

    fn fields(&mut self, fields: &[Field]) -> Result<Json, Malformed> {
        let mut object = Map::new();
        self.input.enter()?;
        while let Some((kind, id)) = self.input.field()? {
            let field = fields.iter().find(|field| field.id == id && on_the_wire(&field.ty) == kind);
            match field {
                Some(field) => drop(object.insert(field.name.clone(), self.value(&field.ty)?)),
                None => self.input.skip(kind)?,
            }
        }
        self.input.leave();
        Ok(object.into())
    }

    fn list(&mut self, element: &Type) -> Result<Json, Malformed> {
        self.input.enter()?;
        let (kind, count) = self.input.list()?;
        check(&[(kind, element)], count)?;
        let values = (0..count).map(|_| self.value(element)).collect::<Result<Vec<_>, _>>()?;
        self.input.leave();
        Ok(values.into())
    }

    fn map(&mut self, key: &Type, held: &Type) -> Result<Json, Malformed> {
        self.input.enter()?;
        let ([key_kind, kind], count) = self.input.map()?;
        check(&[(key_kind, key), (kind, held)], count)?;
        let pair = |_| Ok((self.value(key)?, self.value(held)?));
        let pairs = (0..count).map(pair).collect::<Result<Vec<(Json, Json)>, Malformed>>()?;
        self.input.leave();
        let has_names = !matches!(key, Type::List(_) | Type::Map(..) | Type::Set(_) | Type::Struct(_));
        Ok(match has_names || (pairs.is_empty() && self.whom == For::Programs) {
            true => pairs.into_iter().map(|(key, held)| (name_of(key), held)).collect::<Map<_, _>>().into(),
            false => pairs.into_iter().map(|(key, held)| Json::Array(vec![key, held])).collect(),
        })
    }
}

/// Formats a key as JSON does.
fn name_of(key: Json) -> String {
    match key {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

/// Thrift libraries skip elements of other types than the file declares; this command reports them.
fn check(kinds: &[(thrift::Type, &Type)], count: usize) -> Result<(), Malformed> {
    match kinds.iter().find(|(kind, ty)| count > 0 && *kind != on_the_wire(ty)) {
        None => Ok(()),
        Some((kind, ty)) => {
            Err(Malformed(format!("elements of type {} where the file has {ty:?}", kind.0).into()))
        }
    }
}
