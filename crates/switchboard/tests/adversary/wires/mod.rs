//! The wires as hostile peers speak them, one file a wire.

pub mod baidu;
pub mod erpc;
pub mod http1;
pub mod http2;
pub mod hulu;
pub mod jsonrpc;
pub mod kiss;
pub mod native;
pub mod rpcx;
pub mod sofa;
pub mod thrift;
pub mod tls;
pub mod websocket;
