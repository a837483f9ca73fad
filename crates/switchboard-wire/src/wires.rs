//! The list of wires. Adding one is a folder with its [`WireSpec`] and a line here; those of other frameworks have a
//! feature each.

mod id;
mod set;

pub use id::{NAME_BYTES_MAX, WireId};
pub use set::WireSet;

#[cfg(feature = "baidu")]
use crate::baidu;
#[cfg(feature = "erpc")]
use crate::erpc;
#[cfg(feature = "kiss")]
use crate::kiss;
#[cfg(feature = "rpcx")]
use crate::rpcx;
#[cfg(feature = "thrift")]
use crate::thrift;
use crate::{http_wires, jsonrpc, native, spec::WireSpec};

/// All wires of this build, sorted by name.
pub static WIRES: &[&WireSpec] = &[
    #[cfg(feature = "baidu")]
    &baidu::BAIDU_STD,
    &http_wires::CONNECT,
    #[cfg(feature = "erpc")]
    &erpc::ERPC,
    &http_wires::GRPC,
    &http_wires::GRPC_WEB,
    &http_wires::HTTP_JSON,
    #[cfg(feature = "baidu")]
    &baidu::HULU,
    &jsonrpc::JSON_RPC,
    #[cfg(feature = "kiss")]
    &kiss::KISS,
    &http_wires::LOCAL,
    &native::NATIVE,
    #[cfg(feature = "rpcx")]
    &rpcx::RPCX,
    #[cfg(feature = "baidu")]
    &baidu::SOFA,
    #[cfg(feature = "thrift")]
    &thrift::THRIFT,
    &http_wires::WEBSOCKET,
];

/// The descriptors of the wires of this build that have a channel or a server.
pub mod built_in {
    #[cfg(feature = "baidu")]
    pub use crate::baidu::{BAIDU_STD, HULU, SOFA};
    #[cfg(feature = "erpc")]
    pub use crate::erpc::ERPC;
    #[cfg(feature = "kiss")]
    pub use crate::kiss::KISS;
    #[cfg(feature = "rpcx")]
    pub use crate::rpcx::RPCX;
    #[cfg(feature = "thrift")]
    pub use crate::thrift::THRIFT;
    pub use crate::{
        http_wires::{CONNECT, GRPC, GRPC_WEB},
        jsonrpc::JSON_RPC,
        native::NATIVE,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Streams;

    /// The part of a page between two marks that the test writes.
    const MARKS: [&str; 2] = ["<!-- wires -->\n", "<!-- end of wires -->\n"];

    fn row(spec: &WireSpec) -> String {
        let yes = |yes: bool| if yes { "yes" } else { "" };
        let capabilities = &spec.capabilities;
        let streams = match capabilities.streams {
            Streams::None => "",
            Streams::Replies => "of replies",
            Streams::All => "all",
        };
        let codecs: Vec<_> = capabilities.codecs.iter().map(|codec| codec.name()).collect();
        let codecs =
            if codecs.len() == crate::Codec::ALL.len() { "all".to_owned() } else { codecs.join(", ") };
        let cells = [
            spec.title,
            streams,
            yes(capabilities.metadata),
            yes(capabilities.deadlines),
            yes(capabilities.push),
            yes(capabilities.http),
            yes(spec.is_callable()),
            &codecs,
        ];
        format!("| `{}` | {} |\n", spec.name, cells.join(" | ").replace("  ", " "))
    }

    #[test]
    fn the_documentation_has_the_list() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/layers.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (before, rest) = text.split_once(MARKS[0]).unwrap();
        let (listed, behind) = rest.split_once(MARKS[1]).unwrap();
        let mut table =
            "| wire | protocol | streams | metadata | deadlines | pushes | in HTTP | channels | codecs |\n\
                         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
                .to_owned();
        table.extend(WIRES.iter().filter(|spec| spec.is_served()).map(|spec| row(spec)));
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(page, [before, MARKS[0], &table, MARKS[1], behind].concat()).unwrap();
        } else {
            assert_eq!(listed, table, "UPDATE_EXPECTED=1 writes the table");
        }
    }
}
