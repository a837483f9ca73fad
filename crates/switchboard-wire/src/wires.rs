//! The list of wires. Adding one is a folder with its [`WireSpec`] and a line here.

use crate::{baidu, erpc, http_wires, jsonrpc, kiss, native, rpcx, spec::WireSpec, thrift};

/// All wires of this build, sorted by name.
pub static WIRES: &[&WireSpec] = &[
    &baidu::BAIDU_STD,
    &http_wires::CONNECT,
    &erpc::ERPC,
    &http_wires::GRPC,
    &http_wires::GRPC_WEB,
    &http_wires::HTTP_JSON,
    &baidu::HULU,
    &jsonrpc::JSON_RPC,
    &kiss::KISS,
    &http_wires::LOCAL,
    &native::NATIVE,
    &rpcx::RPCX,
    &baidu::SOFA,
    &thrift::THRIFT,
    &http_wires::WEBSOCKET,
];
