//! The methods that `switchboard bench` calls over Thrift: the same methods with Thrift messages.

use super::{
    benchmark_message,
    proto::thrift_bench::{Bench, BenchmarkMessage, EchoMessage},
};
use serde_json::Value;
use std::future::{Future, ready};
use switchboard::{Cx, Result};

/// The benchmark's service of `bench.thrift`.
#[derive(Debug)]
pub struct ThriftBench;

impl Bench for ThriftBench {
    fn echo(&self, message: EchoMessage, _: &Cx) -> impl Future<Output = Result<EchoMessage>> + Send {
        ready(Ok(message))
    }

    fn message(
        &self,
        mut message: BenchmarkMessage,
        _: &Cx,
    ) -> impl Future<Output = Result<BenchmarkMessage>> + Send {
        "OK".clone_into(&mut message.field1);
        message.field2 = 100;
        ready(Ok(message))
    }
}

/// The message with the content of [`benchmark_message`], field by field: names and ids are the same.
pub fn thrift_benchmark_message() -> BenchmarkMessage {
    let content = benchmark_message();
    let empty = serde_json::to_value(BenchmarkMessage::default()).expect("a struct of plain fields");
    let Value::Object(mut fields) = empty else { unreachable!("a struct is an object") };
    for value in fields.values_mut() {
        *value = match value {
            Value::Bool(_) => true.into(),
            Value::Number(_) => content.field2.into(),
            Value::Array(_) => content.field5.clone().into(),
            _ => content.field1.clone().into(),
        };
    }
    fields.insert("field129".to_owned(), content.field129.into());
    serde_json::from_value(fields.into()).expect("every field has a value of its type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::{Codec, codegen::thrift};

    #[test]
    fn message_has_as_many_bytes_as_other_libraries_make_of_it() {
        let message = thrift_benchmark_message();
        assert_eq!(message.field103, benchmark_message().field103.unwrap());
        assert_eq!(thrift::encode(&message, Codec::Thrift).unwrap().len(), 687);
    }
}
