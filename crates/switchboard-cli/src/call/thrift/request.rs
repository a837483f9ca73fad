//! Converts JSON to Thrift: the struct of a method's arguments, or of its result.

use super::{
    super::json::{Wrong, base64, boolean, double, integer, list, object, text},
    Function, instead, on_the_wire,
};
use bytes::Bytes;
use serde_json::Value as Json;
use switchboard::Status;
use switchboard_build::interface::{Field, Interface, StructKind, Type};
use switchboard_wire::thrift::{
    self, Reader, Uuid, Value,
    value::{put_field_head, put_stop},
};

impl Function {
    /// Writes the struct of the arguments that an object contains; the server chooses the values of missing ones.
    ///
    /// # Errors
    /// The value that does not fit, and its field.
    pub(crate) fn write(&self, json: &Json) -> Result<Bytes, String> {
        let mut writer = Writer { interface: &self.interface, out: Vec::new() };
        writer.fields(&self.path, &self.method.arguments, json).map_err(Wrong::said)?;
        Ok(writer.out.into())
    }

    /// Writes the struct of a result with this value.
    ///
    /// # Errors
    /// The value that does not fit, and its field.
    pub(crate) fn write_result(&self, json: &Json) -> Result<Bytes, String> {
        let mut writer = Writer { interface: &self.interface, out: Vec::new() };
        if let Some(ty) = &self.method.returns {
            put_field_head(&mut writer.out, on_the_wire(ty), 0);
            writer.value(ty, json).map_err(Wrong::said)?;
        }
        put_stop(&mut writer.out);
        Ok(writer.out.into())
    }

    /// Writes the struct of a result with the exception of this status, if the method declares it.
    pub(crate) fn write_thrown(&self, status: &Status) -> Option<Bytes> {
        self.method.throws.iter().find_map(|throw| {
            let Type::Struct(at) = throw.ty else { return None };
            let name = &self.interface.structs[at].name;
            // The details of a status may contain anything, so they are checked.
            let detail = status.details().iter().find(|detail| {
                let mut input = Reader::new(&detail.value);
                detail.type_name == *name && input.skip(thrift::Type::STRUCT).is_ok() && input.left() == 0
            })?;
            let mut out = Vec::with_capacity(detail.value.len() + 4);
            put_field_head(&mut out, thrift::Type::STRUCT, throw.id);
            out.extend_from_slice(&detail.value);
            put_stop(&mut out);
            Some(out.into())
        })
    }
}

struct Writer<'a> {
    interface: &'a Interface,
    out: Vec<u8>,
}

impl Writer<'_> {
    /// Writes a struct; returns how many of its fields were present.
    fn fields(&mut self, name: &str, fields: &[Field], json: &Json) -> Result<usize, Wrong> {
        let object = object(name, json)?;
        if let Some(unknown) = object.keys().find(|key| !fields.iter().any(|field| field.name == **key)) {
            let known = instead(unknown, fields.iter().map(|field| field.name.as_str()));
            return Err(Wrong::new(format!("{name} has no {unknown:?}{known}")));
        }
        let mut written = 0;
        for field in fields {
            match object.get(&field.name).filter(|value| !value.is_null()) {
                Some(value) => {
                    put_field_head(&mut self.out, on_the_wire(&field.ty), field.id);
                    let step = || format!(".{}", field.name);
                    self.value(&field.ty, value).map_err(|wrong| wrong.within(&step()))?;
                    written += 1;
                }
                None if field.required => {
                    return Err(Wrong::new(format!("{name} has no {}, which is required", field.name)));
                }
                None => {}
            }
        }
        put_stop(&mut self.out);
        Ok(written)
    }

    fn value(&mut self, ty: &Type, json: &Json) -> Result<(), Wrong> {
        let out = &mut self.out;
        match ty {
            Type::Bool => boolean(json)?.write(out),
            Type::I8 => integer::<i8>(json)?.write(out),
            Type::I16 => integer::<i16>(json)?.write(out),
            Type::I32 => integer::<i32>(json)?.write(out),
            Type::I64 => integer::<i64>(json)?.write(out),
            Type::Enum(at) => self.member(*at, json)?.write(&mut self.out),
            Type::Double => double(json)?.write(out),
            Type::String => text(json, "a text")?.to_owned().write(out),
            Type::Uuid => {
                let uuid = text(json, "a UUID")?.parse::<Uuid>();
                uuid.map_err(|malformed| Wrong::new(malformed.to_string()))?.write(out);
            }
            Type::Binary => binary(json)?.write(out),
            Type::Struct(at) => {
                let item = &self.interface.structs[*at];
                let written = self.fields(&item.name, &item.fields, json)?;
                if item.kind == StructKind::Union && written != 1 {
                    let text = format!("a union, {}, has one of its fields and not {written}", item.name);
                    return Err(Wrong::new(text));
                }
            }
            Type::List(element) | Type::Set(element) => {
                let values = list(json)?;
                out.push(on_the_wire(element).0);
                size(values.len())?.write(out);
                for (at, value) in values.iter().enumerate() {
                    self.value(element, value).map_err(|wrong| wrong.within(&format!("[{at}]")))?;
                }
            }
            Type::Map(key, value) => self.map(key, value, json)?,
        }
        Ok(())
    }

    /// Writes a map from an object, or from a list of pairs.
    fn map<'j>(&mut self, key: &Type, value: &Type, json: &'j Json) -> Result<(), Wrong> {
        let pairs: Vec<(Json, &'j Json)> = match json {
            Json::Object(object) => {
                object.iter().map(|(name, value)| (named_key(key, name), value)).collect()
            }
            Json::Array(pairs) => {
                let pair = |pair: &'j Json| match pair.as_array().map(Vec::as_slice) {
                    Some([key, value]) => Ok((key.clone(), value)),
                    _ => Err(Wrong::expected("a key and its value in a list", pair)),
                };
                pairs.iter().map(pair).collect::<Result<_, _>>()?
            }
            other => return Err(Wrong::expected("an object, or a list of pairs,", other)),
        };
        self.out.extend_from_slice(&[on_the_wire(key).0, on_the_wire(value).0]);
        size(pairs.len())?.write(&mut self.out);
        for (name, held) in pairs {
            let step = format!("[{name}]");
            self.value(key, &name).map_err(|wrong| wrong.within(&step))?;
            self.value(value, held).map_err(|wrong| wrong.within(&step))?;
        }
        Ok(())
    }

    /// Returns the number of a member from its name, or from a number that may be unknown.
    fn member(&self, at: usize, json: &Json) -> Result<i32, Wrong> {
        let item = &self.interface.enums[at];
        let Json::String(wanted) = json else { return integer(json) };
        let member = item.members.iter().find(|(name, _)| name == wanted);
        member.map(|(_, number)| *number).ok_or_else(|| {
            let known = instead(wanted, item.members.iter().map(|(name, _)| name.as_str()));
            Wrong::new(format!("{} has no {wanted}{known}", item.name))
        })
    }
}

/// Converts a key of a map, which is always a text in JSON.
fn named_key(key: &Type, name: &str) -> Json {
    let is_text = matches!(key, Type::Binary | Type::String | Type::Uuid);
    let plain = |json: &Json| !is_text && (json.is_number() || json.is_boolean());
    serde_json::from_str(name).ok().filter(plain).unwrap_or_else(|| name.into())
}

/// Reads base64, or a list of numbers, which programs write.
fn binary(json: &Json) -> Result<Bytes, Wrong> {
    if let Json::Array(numbers) = json {
        let bytes = numbers.iter().map(|number| u8::try_from(number.as_u64()?).ok());
        let bytes = bytes.collect::<Option<Vec<_>>>();
        return bytes.map(Bytes::from).ok_or_else(|| Wrong::expected("bytes", json));
    }
    base64(text(json, "bytes in base64")?).map(Bytes::from)
}

fn size(len: usize) -> Result<i32, Wrong> {
    i32::try_from(len).map_err(|_| Wrong::new(format!("{len} elements are more than Thrift counts")))
}
