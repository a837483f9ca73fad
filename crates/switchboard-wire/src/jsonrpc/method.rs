//! Lookup of methods by name, and conversion of parameters to a request message.

use super::{error::quoted, request::FirstOf};
use crate::{Found, Kind, MethodInfo, MethodTable, Params, Status};
use bytes::Bytes;

/// Longest name that error texts repeat, in bytes.
const NAME_MAX: usize = 200;

/// Finds the method with the name `package.Service.Method`, `package.Service/Method` or `Service.Method`.
///
/// # Errors
/// `Unimplemented` for a name that matches no method, or more than one.
pub fn find(table: &MethodTable, name: &str) -> Result<Found, Status> {
    look_up(table, name).or_else(|status| {
        let full = name.rsplit_once(['/', '.']).map(|(service, method)| format!("{service}/{method}"));
        table.refuse(full.as_deref().unwrap_or(name), Kind::Unary, status)
    })
}

fn look_up(table: &MethodTable, name: &str) -> Result<Found, Status> {
    let Some((service, method)) = name.rsplit_once(['/', '.']).filter(|_| name.len() <= NAME_MAX) else {
        let name: String = name.chars().take(NAME_MAX).collect();
        return Err(Status::unimplemented(format!(
            "{name:?} is not a method name; expected package.Service.Method"
        )));
    };
    let full = format!("{service}/{method}");
    if let Some(found) = table.find(&full) {
        return Ok(found.into());
    }
    let is_it = |known: &&&str| known.rsplit_once('.').is_some_and(|(_, short)| short == service);
    let names: Vec<&str> = table.services().iter().map(|service| service.name).collect();
    let mut services = names.iter().filter(is_it);
    match (services.next(), services.next()) {
        (Some(known), None) => {
            let full = format!("{known}/{method}");
            table.find(&full).map(Found::from).ok_or_else(|| table.unknown(&full))
        }
        (Some(one), Some(other)) => Err(table.ambiguous(service, one, other)),
        _ => table.undeclared(&full, Kind::Unary).ok_or_else(|| table.unknown(&full)),
    }
}

/// Converts parameters to the request message in JSON: an object is unchanged, an array is mapped by the order of the
/// parts, missing parameters are an empty object.
///
/// # Errors
/// `InvalidArgument` for more values than the message has parts.
pub fn message(info: &MethodInfo, params: Option<&Bytes>) -> Result<Bytes, Status> {
    let empty = || Ok(Bytes::from_static(b"{}"));
    let Some(params) = params else { return empty() };
    if params.first() != Some(&b'[') || info.params == Params::AsSent {
        return Ok(params.clone());
    }
    let (names, max) = match info.params {
        Params::Arguments(names) | Params::Fields(names) => (names, names.len().max(1)),
        Params::Unknown | Params::AsSent => (&[][..], 1),
    };
    let array = std::str::from_utf8(params).map_err(|_| Status::invalid_argument("params are not UTF-8"))?;
    let values = FirstOf::read(array, max).map_err(|error| Status::invalid_argument(error.message))?;
    match (info.params, &values.values[..]) {
        (_, []) => empty(),
        // A single object is the message. A message without named parts may be any single value: well-known types may
        // be any JSON.
        (Params::Fields(_) | Params::Unknown, [one]) if !values.more && one.get().starts_with('{') => {
            Ok(params.slice_ref(one.get().as_bytes()))
        }
        (Params::Unknown, [one]) if !values.more => Ok(params.slice_ref(one.get().as_bytes())),
        (Params::Unknown, _) => Err(Status::invalid_argument(format!(
            "{} takes its parameters by name: send an object",
            info.name
        ))),
        (_, values_here) if values.more || values_here.len() > names.len() => {
            Err(Status::invalid_argument(format!("{} takes at most {} parameters", info.name, names.len())))
        }
        (_, values) => {
            let mut object = Vec::with_capacity(params.len() + 16 * values.len());
            for (name, value) in names.iter().zip(values) {
                object.push(if object.is_empty() { b'{' } else { b',' });
                object.extend_from_slice(quoted(name).as_bytes());
                object.push(b':');
                object.extend_from_slice(value.get().as_bytes());
            }
            object.push(b'}');
            Ok(object.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MethodId, ServiceInfo};

    static ONE: ServiceInfo =
        ServiceInfo { name: "a.v1.Calc", methods: &[MethodInfo::new("Add", Kind::Unary)], descriptor: &[] };
    static OTHER: ServiceInfo =
        ServiceInfo { name: "b.Calc", methods: &[MethodInfo::new("Add", Kind::Unary)], descriptor: &[] };
    static PLAIN: ServiceInfo =
        ServiceInfo { name: "Plain", methods: &[MethodInfo::new("Do", Kind::Unary)], descriptor: &[] };

    #[test]
    fn names_have_three_spellings() {
        let mut table = MethodTable::default();
        table.add(&ONE).unwrap();
        table.add(&PLAIN).unwrap();
        for name in ["a.v1.Calc.Add", "a.v1.Calc/Add", "Calc.Add", "Calc/Add"] {
            assert_eq!(find(&table, name).ok(), Some(MethodId(0).into()), "{name}");
        }
        assert_eq!(find(&table, "Plain.Do").ok(), Some(MethodId(1).into()));
        for name in
            ["", "Add", "v1.Calc.Add", "Calc.Nope", "a.v1.Calc.Add.", "rpc.discover", &"x.".repeat(500)]
        {
            let status = find(&table, name).unwrap_err();
            assert_eq!(status.code(), crate::Code::Unimplemented, "{name}");
            assert!(status.message().len() < 400);
        }
        table.add(&OTHER).unwrap();
        assert!(find(&table, "Calc.Add").unwrap_err().message().contains("a.v1.Calc or b.Calc"));
        assert_eq!(find(&table, "b.Calc.Add").ok(), Some(MethodId(2).into()));
    }

    #[test]
    fn parameters_become_messages() {
        let info = |params| MethodInfo::new("Add", Kind::Unary).params(params);
        let (fields, arguments) = (info(Params::Fields(&["a", "bC"])), info(Params::Arguments(&["a", "b"])));
        let (unknown, none) = (info(Params::Unknown), info(Params::Arguments(&[])));
        for (info, params, wanted) in [
            (&fields, r#"{"bC": 1}"#, r#"{"bC": 1}"#),
            (&fields, r#"[{"a": 1}]"#, r#"{"a": 1}"#),
            (&fields, "[1]", r#"{"a":1}"#),
            (&fields, "[1, [2]]", r#"{"a":1,"bC":[2]}"#),
            (&fields, r#"[{"x":1}, 2]"#, r#"{"a":{"x":1},"bC":2}"#),
            (&fields, "[]", "{}"),
            (&arguments, r#"[{"x":1}]"#, r#"{"a":{"x":1}}"#),
            (&arguments, r#"["1",2]"#, r#"{"a":"1","b":2}"#),
            (&none, "[]", "{}"),
            (&unknown, r#"["x"]"#, r#""x""#),
            (&unknown, r#"[{"x":1}]"#, r#"{"x":1}"#),
        ] {
            assert_eq!(message(info, Some(&Bytes::from(params))).unwrap(), wanted, "{params}");
        }
        assert_eq!(message(&fields, None).unwrap(), "{}");
        for (info, params) in
            [(&fields, "[1,2,3]"), (&none, "[1]"), (&none, "[{}]"), (&unknown, "[1,2]"), (&unknown, "[{},2]")]
        {
            let status = message(info, Some(&Bytes::from(params))).unwrap_err();
            assert_eq!(status.code(), crate::Code::InvalidArgument, "{params}");
        }
    }
}
