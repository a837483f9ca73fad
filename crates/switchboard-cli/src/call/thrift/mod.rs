//! Calls of services of `.thrift` files: converts JSON to the wire and replies to JSON by these files.
//!
//! In JSON, bytes are base64, enums are the names of their members, and maps are objects if their keys are texts or
//! numbers, otherwise lists of pairs.

mod reply;
mod request;

pub(crate) use reply::{For, Outcome};

use super::{
    Command,
    failure::Failure,
    input::{Form, Input},
    names::{instead, method_at, service_at, split_method},
    output::Output,
    replies::Replies,
    schema::SchemaArgs,
    wire::Wire,
};
use std::sync::Arc;
use switchboard::{ClientMethod, Codec, Idempotency, Kind};
use switchboard_build::interface::{Field, Interface, Method, Service, Type};
use switchboard_wire::thrift;

impl Command<'_> {
    /// Calls a method of a `.thrift` file.
    pub(super) async fn call_function(&mut self, output: &mut Output) -> Result<(), Failure> {
        let Some(definitions) = Definitions::of_files(&self.args.schema)? else {
            let text = "calls on Thrift need the .thrift file of the service: name it with --thrift FILE";
            return Err(Failure::Usage(text.into()));
        };
        let function = definitions.function(&self.args.verb)?;
        self.oneway |= function.method.oneway;
        let has_header = ["header", "header-compact"].map(|value| self.target.has_option("protocol", value));
        if !self.args.headers.is_empty() && has_header == [false, false] && !self.target.is_posted() {
            let text = "Thrift carries metadata behind THeader and on HTTP alone: add ?protocol=header to the URL, \
                        if the server speaks it, or leave -H away";
            return Err(Failure::Usage(text.into()));
        }
        let method = ClientMethod::intern(&function.path, Kind::Unary, Idempotency::Unknown)
            .map_err(|status| Failure::Usage(status.message().to_owned()))?;
        let takes_fields = !function.method.arguments.is_empty();
        let input = Input::new(self.args.data.as_deref(), false, takes_fields)?;
        let requests = input.read(Form::Arguments(function.clone()));
        let channel = self.connect(Wire::THRIFT).await?;
        self.invoke(&channel, method, Codec::Thrift, requests, Replies::of_function(function), output).await
    }
}

/// The declarations of the files that the command line names.
#[derive(Debug)]
pub(crate) struct Definitions(Arc<Interface>);

impl Definitions {
    /// Returns `None` if the command line names no file.
    pub(crate) fn of_files(args: &SchemaArgs) -> Result<Option<Definitions>, Failure> {
        if args.thrift.is_empty() {
            return Ok(None);
        }
        let read = Interface::read(&args.thrift, &args.includes);
        let interface = read.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Some(Definitions(Arc::new(interface))))
    }

    /// Returns the names of all services, or of the methods of one.
    pub(super) fn list(&self, service: Option<&str>) -> Result<Vec<String>, Failure> {
        let Some(name) = service else {
            return Ok(self.0.services.iter().map(|service| service.name.clone()).collect());
        };
        let service = self.service(name)?;
        Ok(service.methods.iter().map(|method| format!("{}/{}", service.name, method.name)).collect())
    }

    /// Returns the method that the user typed.
    pub(super) fn function(&self, typed: &str) -> Result<Function, Failure> {
        let (service, name) = split_method(typed).map_err(Failure::Usage)?;
        let service = self.service(service)?;
        let known: Vec<_> = service.methods.iter().map(|method| &*method.name).collect();
        let at = method_at(&service.name, &known, name).map_err(Failure::Usage)?;
        let path = format!("{}/{name}", service.name);
        Ok(Function { interface: self.0.clone(), path, method: service.methods[at].clone() })
    }

    /// Returns every service, and its methods.
    pub(crate) fn services(&self) -> impl Iterator<Item = (&str, Vec<Function>)> {
        self.0.services.iter().map(|service| {
            let function = |method: &Method| Function {
                interface: self.0.clone(),
                path: format!("{}/{}", service.name, method.name),
                method: method.clone(),
            };
            (&*service.name, service.methods.iter().map(function).collect())
        })
    }

    fn service(&self, name: &str) -> Result<&Service, Failure> {
        let known: Vec<_> = self.0.services.iter().map(|service| &*service.name).collect();
        let at = service_at(&known, name).map_err(Failure::Usage)?;
        Ok(&self.0.services[at])
    }
}

/// A method, and every type that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    interface: Arc<Interface>,
    /// As in `tutorial.Calculator/add`.
    pub(super) path: String,
    pub(super) method: Method,
}

impl Function {
    /// As in `tutorial.Calculator/add`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The name on the wire.
    pub(crate) fn name(&self) -> &str {
        &self.method.name
    }

    /// Returns the names of its arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.method.arguments.iter().map(|argument| &*argument.name)
    }

    /// Returns the field number of the only argument if that is a struct: protobuf services have such methods, and rpcx
    /// sends the struct without the enclosing one.
    pub(crate) fn sole(&self) -> Option<i16> {
        match &self.method.arguments[..] {
            [Field { id, ty: Type::Struct(_), .. }] => Some(*id),
            _ => None,
        }
    }

    /// Returns whether it has the form of a protobuf method: one struct with the number 1, and a struct or nothing as
    /// its result.
    pub(crate) fn is_of_messages(&self) -> bool {
        self.sole() == Some(1) && (self.returns_struct() || self.method.returns.is_none())
    }

    /// Returns whether it returns a struct.
    pub(crate) fn returns_struct(&self) -> bool {
        matches!(self.method.returns, Some(Type::Struct(_)))
    }

    /// Returns whether it has no reply.
    pub(crate) fn is_oneway(&self) -> bool {
        self.method.oneway
    }
}

/// Returns the type of a value on the wire.
fn on_the_wire(ty: &Type) -> thrift::Type {
    match ty {
        Type::Binary | Type::String => thrift::Type::STRING,
        Type::Bool => thrift::Type::BOOL,
        Type::Double => thrift::Type::DOUBLE,
        Type::Enum(_) | Type::I32 => thrift::Type::I32,
        Type::I8 => thrift::Type::I8,
        Type::I16 => thrift::Type::I16,
        Type::I64 => thrift::Type::I64,
        Type::List(_) => thrift::Type::LIST,
        Type::Map(..) => thrift::Type::MAP,
        Type::Set(_) => thrift::Type::SET,
        Type::Struct(_) => thrift::Type::STRUCT,
        Type::Uuid => thrift::Type::UUID,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::path::PathBuf;
    use switchboard::Code;

    fn definitions() -> Definitions {
        let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/thrift/echo.thrift"));
        Definitions(Arc::new(Interface::read(&[file], &[]).unwrap()))
    }

    /// Returns a method of the service in the file; its methods return their arguments.
    fn function(name: &str) -> Function {
        definitions().function(&format!("Echo/{name}")).unwrap()
    }

    /// Returns the reply to a request: field 1 of its struct, the only one, becomes field 0 of the result.
    fn echoed(name: &str, value: &Value) -> Result<Value, String> {
        let function = function(name);
        let mut result = function.write(&json!({"value": value}))?.to_vec();
        result[2] = 0;
        function.read(&result.into()).map_err(|status| status.to_string())
    }

    #[test]
    fn every_type_goes_to_the_wire_and_back() {
        for (method, value) in [
            ("flag", json!(true)),
            ("small", json!(-128)),
            ("short", json!(-300)),
            ("number", json!(70000)),
            ("long", json!(i64::MIN)),
            ("real", json!(0.5)),
            ("real", json!("-Infinity")),
            ("text", json!("\u{e9}")),
            ("bytes", json!("AP8=")),
            ("uuid", json!("123e4567-e89b-12d3-a456-426614174000")),
            ("color", json!("BLUE")),
            ("color", json!(77)),
            ("post", json!({"id": 1, "tags": ["a", "b"], "color": "RED", "next": [{"id": 2}]})),
            ("shape", json!({"radius": 1.5})),
            ("by_number", json!({"-1": [{"id": 1}], "2": []})),
            ("by_post", json!([[{"id": 1}, "one"], [{"id": 2}, "two"]])),
        ] {
            assert_eq!(echoed(method, &value).as_ref(), Ok(&value), "{method}");
        }
        assert_eq!(echoed("color", &json!(5)), Ok(json!("BLUE")));
        assert_eq!(echoed("by_number", &json!([[3, []]])), Ok(json!({"3": []})));
    }

    #[test]
    fn errors_name_the_field() {
        for (method, value, expected) in [
            ("small", json!(128), "field value: expected a whole number of 8 bits and not 128"),
            ("number", json!("1"), "field value: expected a whole number of 32 bits and not \"1\""),
            ("color", json!("GREN"), "field value: test.echo.Color has no GREN; did you mean GREEN?"),
            ("bytes", json!("a b"), "field value: the text is not base64"),
            ("post", json!({"tags": []}), "field value: test.echo.Post has no id, which is required"),
            ("post", json!({"id": 1, "tag": []}), "test.echo.Post has no \"tag\"; did you mean tags?"),
            ("post", json!({"id": 1, "tags": ["a", 2]}), "field value.tags[1]: expected a text and not 2"),
            ("shape", json!({"side": 1, "radius": 1}), "a union, test.echo.Shape, has one of its fields"),
            ("by_number", json!({"x": []}), "field value[\"x\"]: expected a whole number of 16 bits"),
            ("by_post", json!([[1]]), "field value: expected a key and its value in a list and not [1]"),
        ] {
            let error = echoed(method, &value).unwrap_err();
            assert!(error.contains(expected), "{method}: {error}");
        }
        let wrong = function("flag").write(&json!([])).unwrap_err();
        assert_eq!(wrong, "expected an object, test.echo.Echo/flag, and not []");
    }

    #[test]
    fn exceptions_are_statuses_and_invalid_results_are_errors() {
        let read = |method: &str, result: &'static [u8]| function(method).read(&result.into());
        // Field 1, a struct with a text as field 1.
        let thrown = read("find", b"\x0c\0\x01\x0b\0\x01\0\0\0\x04gone\0\0").unwrap_err();
        assert_eq!((thrown.code(), thrown.message()), (Code::NotFound, r#"test.echo.Gone {"why":"gone"}"#));
        assert_eq!(read("nothing", b"\0").unwrap(), Value::Null);
        for (method, result, expected) in [
            // Only an unknown field.
            ("find", &b"\x02\0\x09\x01\0"[..], "neither a value nor an exception that the file declares"),
            ("find", b"\x0b\0\0\0\0\0\x09", "the reply is not a result of test.echo.Echo/find: "),
            ("list", b"\x0f\0\0\x0b\0\0\0\x01\0\0\0\0\0", "elements of type 11 where the file has I32"),
        ] {
            let wrong = read(method, result).unwrap_err();
            assert!(wrong.message().contains(expected), "{wrong}");
        }
    }

    #[test]
    fn unknown_names_get_the_nearest_as_a_suggestion() {
        let definitions = definitions();
        assert_eq!(definitions.list(None).unwrap(), ["test.echo.Base", "test.echo.Echo"]);
        let methods = definitions.list(Some("Echo")).unwrap();
        assert_eq!(methods[..2], ["test.echo.Echo/nothing", "test.echo.Echo/flag"]);
        for (typed, expected) in [
            ("Eco/flag", "unknown service Eco; did you mean test.echo.Echo?"),
            ("Echo/flagg", "unknown method flagg of test.echo.Echo; did you mean flag?"),
        ] {
            assert_eq!(definitions.function(typed).unwrap_err().text(), format!("switchboard: {expected}"));
        }
    }
}
