//! Constants, and default values of fields.

use super::{
    ast::{Base, Constant, StructKind, Type, Value},
    schema::Resolved,
    structs::Plan,
    types::{Types, constant_ident, type_ident},
};
use crate::{Error, docs};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;

/// Emits a constant of a type that a Rust constant can have: numbers, texts, members of enums. Other constants are only
/// used as values of fields.
pub(super) fn emit(
    types: &Types<'_>,
    file: usize,
    constant: &Constant,
) -> Result<Option<TokenStream>, Error> {
    let Constant { name, ty, value, doc, line } = constant;
    let resolved = types.schema.resolve(file, ty, *line)?;
    let (ty, value) = match &resolved {
        Resolved::Base(Base::String) => {
            let (_, found) = types.schema.value(file, value, *line)?;
            let Value::Text(text) = &*found else { return Err(unfit(types, file, *line)) };
            (quote!(&str), quote!(#text))
        }
        Resolved::Base(Base::Binary) => return Ok(None),
        Resolved::Base(_) | Resolved::Enum(..) => {
            (types.rust(&resolved, false)?, expression(types, file, value, &resolved, *line, false)?)
        }
        _ => return Ok(None),
    };
    let ident = constant_ident(name);
    let doc = docs::attributes(&doc.as_deref().map_or_else(|| format!("`{name}`."), docs::escape_comment));
    Ok(Some(quote!(#doc pub const #ident: #ty = #value;)))
}

/// Returns the value as an expression of its type.
pub(super) fn expression(
    types: &Types<'_>,
    file: usize,
    value: &Value,
    ty: &Resolved<'_>,
    line: usize,
    keyed: bool,
) -> Result<TokenStream, Error> {
    let unfit = || unfit(types, file, line);
    let (at, value) = types.schema.value(file, value, line)?;
    let inner = |value: &Value, ty: &Resolved<'_>, keyed: bool| expression(types, at, value, ty, line, keyed);
    Ok(match (ty, &*value) {
        (Resolved::Base(base), value) => base_value(*base, value, keyed).ok_or_else(unfit)?,
        (Resolved::Enum(file, item), Value::Int(number)) => {
            let number = i32::try_from(*number).map_err(|_| unfit())?;
            let (path, number) = (types.path(*file, &item.name), Literal::i32_unsuffixed(number));
            quote!(#path(#number))
        }
        (Resolved::List(element), Value::List(values)) => {
            let values = values.iter().map(|value| inner(value, element, keyed));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            quote!(::std::vec![#(#values),*])
        }
        (Resolved::Set(element), Value::List(values)) => {
            let values = values.iter().map(|value| inner(value, element, true));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            quote!(::std::collections::BTreeSet::from([#(#values),*]))
        }
        (Resolved::Set(_) | Resolved::Map(..), Value::Map(pairs)) if pairs.is_empty() => {
            quote!(::core::default::Default::default())
        }
        (Resolved::Map(..), Value::List(values)) if values.is_empty() => {
            quote!(::core::default::Default::default())
        }
        (Resolved::Map(key_type, value_type), Value::Map(pairs)) => {
            let pairs = pairs.iter().map(|(key, value)| {
                let (key, value) = (inner(key, key_type, true)?, inner(value, value_type, keyed)?);
                Ok::<_, Error>(quote!((#key, #value)))
            });
            let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
            quote!(::std::collections::BTreeMap::from([#(#pairs),*]))
        }
        (Resolved::Struct(in_file, item), Value::Map(pairs)) => {
            let path = types.path(*in_file, &item.name);
            let mut values = Vec::new();
            for (name, value) in pairs {
                let Value::Text(name) = name else { return Err(unfit()) };
                let field = item.fields.iter().find(|field| field.name == *name).ok_or_else(unfit)?;
                let plan = Plan::new(types, *in_file, item, field)?;
                values.push((plan.ident.clone(), field, plan.wrap(inner(value, &plan.resolved, false)?)));
            }
            if item.kind == StructKind::Union {
                let [(_, field, value)] = &values[..] else { return Err(unfit()) };
                let variant = type_ident(&field.name);
                return Ok(quote!(#path::#variant(#value)));
            }
            let values = values.iter().map(|(ident, _, value)| quote!(#ident: #value));
            quote!(#path { #(#values,)* ..::core::default::Default::default() })
        }
        _ => return Err(unfit()),
    })
}

fn base_value(base: Base, value: &Value, keyed: bool) -> Option<TokenStream> {
    let literal = match (base, value) {
        (Base::Bool, Value::Int(number)) => {
            let ident = Ident::new(if *number == 0 { "false" } else { "true" }, Span::call_site());
            return Some(quote!(#ident));
        }
        (Base::I8, Value::Int(number)) => Literal::i8_unsuffixed(i8::try_from(*number).ok()?),
        (Base::I16, Value::Int(number)) => Literal::i16_unsuffixed(i16::try_from(*number).ok()?),
        (Base::I32, Value::Int(number)) => Literal::i32_unsuffixed(i32::try_from(*number).ok()?),
        (Base::I64, Value::Int(number)) => Literal::i64_unsuffixed(*number),
        (Base::Double, Value::Int(number)) => Literal::f64_unsuffixed(*number as f64),
        (Base::Double, Value::Double(number)) => Literal::f64_unsuffixed(*number),
        (Base::String, Value::Text(text)) => return Some(quote!(::std::string::String::from(#text))),
        (Base::Binary, Value::Text(text)) => {
            let bytes = Literal::byte_string(text.as_bytes());
            return Some(quote!(::switchboard::codegen::Bytes::from_static(#bytes)));
        }
        (Base::Uuid, Value::Text(text)) => {
            let uuid: switchboard_wire::thrift::Uuid = text.trim_matches(['{', '}']).parse().ok()?;
            let bytes = uuid.0;
            return Some(quote!(::switchboard::codegen::thrift::Uuid([#(#bytes),*])));
        }
        _ => return None,
    };
    if base == Base::Double && keyed {
        return Some(quote!(::switchboard::codegen::thrift::Double(#literal)));
    }
    Some(quote!(#literal))
}

fn unfit(types: &Types<'_>, file: usize, line: usize) -> Error {
    Error::new(format!("{}: the value does not fit its type", types.schema.place(file, line)))
}

/// Emits the alias of a typedef.
pub(super) fn alias(
    types: &Types<'_>,
    file: usize,
    name: &str,
    ty: &Type,
    doc: Option<&str>,
    line: usize,
) -> Result<TokenStream, Error> {
    let resolved = types.schema.resolve(file, ty, line)?;
    let (ident, ty) = (type_ident(name), types.rust(&resolved, false)?);
    // An alias that differs from the type only in spelling is not needed.
    if let Resolved::Struct(at, item) = &resolved
        && types.schema.documents[*at].package == types.package
        && type_ident(&item.name) == ident
    {
        return Ok(TokenStream::new());
    }
    let doc = docs::attributes(&doc.map_or_else(|| format!("`{name}`."), docs::escape_comment));
    Ok(quote!(#doc pub type #ident = #ty;))
}
