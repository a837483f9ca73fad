//! The service of `thrift/greeter.thrift`, which the demo has too.

use std::path::Path;

pub const GREET: &str = "thrift.demo.ThriftGreeter/greet";

include!("../../generated/thrift.demo.rs");

struct Hello;

impl ThriftGreeter for Hello {
    async fn greet(&self, name: String, _cx: &switchboard::Cx) -> switchboard::Result<String> {
        match name.is_empty() {
            true => Err(Nameless { message: "name is empty".to_owned() }.into()),
            false => Ok(format!("hello {name}")),
        }
    }
}

/// The path of the file.
pub fn file() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("thrift/greeter.thrift").to_str().unwrap().to_owned()
}

/// Where it is served, for as long as the tests run.
pub fn serve() -> String {
    super::serve(switchboard::Server::new().add(ThriftGreeterServer::new(Hello)))
}
