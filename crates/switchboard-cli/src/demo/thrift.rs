//! Thrift: a service of a `.thrift` file, called in each protocol and transport.

use super::{answers::Method, table::Row};
use crate::services::proto::thrift::{Nameless, ThriftGreeter, ThriftGreeterClient, ThriftGreeterServer};
use switchboard::{Cx, Result, Service};

struct Hello;

impl ThriftGreeter for Hello {
    async fn greet(&self, name: String, _cx: &Cx) -> Result<String> {
        if name.is_empty() {
            return Err(Nameless { message: "name is empty: say whom to greet".to_owned() }.into());
        }
        Ok(format!("hello {name}"))
    }
}

/// The service that is called.
pub(super) fn service() -> impl Service {
    ThriftGreeterServer::new(Hello)
}

/// Calls the server at `HOST:PORT` in each protocol and transport.
///
/// # Errors
/// When a connection cannot be opened.
pub(super) async fn rows(address: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (wire, options) in [
        ("Thrift binary, framed", "protocol=binary"),
        ("Thrift binary, buffered", "protocol=binary&framed=false"),
        ("Thrift compact, framed", "protocol=compact"),
        ("Thrift header", "protocol=header"),
    ] {
        let url = format!("tcp://{address}?wire=thrift&{options}");
        let client = ThriftGreeterClient::connect(&url).await;
        let client = client.map_err(|status| format!("connect to {url}: {status}"))?;
        let call = async || {
            let reply = client.greet("Ada".to_owned()).await.map_err(|status| status.to_string())?;
            Ok(reply.into_inner())
        };
        rows.push(Row::measure(wire, Method::Greet, call).await);
    }
    Ok(rows)
}
