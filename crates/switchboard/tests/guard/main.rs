//! Guards and layers of a server, called over every wire.
#![cfg(all(feature = "auth", feature = "http"))]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod aborts;
mod auth;
mod batches;
mod channels;
mod concurrency;
mod exposure;
mod fair;
mod flags;
mod jwks;
mod layers;
#[cfg(feature = "otlp")]
mod otlp;
mod rates;
mod reporting;
mod results;

use std::sync::Arc;
use support::{raw::soon, *};
use switchboard::{Channel, Codec, Result, Running, Server, Status, codec::serde};

/// The wires that a channel speaks: the options of the address, and the codec of calls.
const WIRES: [(&str, Codec); 8] = [
    ("", Codec::Postcard),
    ("?wire=grpc", Codec::Json),
    ("?wire=grpc-web", Codec::Json),
    ("?wire=connect", Codec::Json),
    ("?wire=connect&http=1", Codec::Json),
    ("?wire=jsonrpc", Codec::Json),
    ("ws?wire=jsonrpc", Codec::Json),
    ("?wire=rpcx", Codec::MsgPack),
];

/// A client on one wire.
struct Client {
    wire: &'static str,
    codec: Codec,
    channel: Channel,
}

impl Client {
    /// One for each wire.
    async fn each(running: &Running) -> Vec<Client> {
        let mut clients = Vec::new();
        for (options, codec) in WIRES {
            clients.push(Client::on(running, options, codec).await);
        }
        clients
    }

    async fn on(running: &Running, options: &'static str, codec: Codec) -> Client {
        Client::try_on(running, options, codec).await.unwrap()
    }

    async fn try_on(running: &Running, options: &'static str, codec: Codec) -> Result<Client> {
        let url = match options.strip_prefix("ws") {
            Some(options) => running.url().replace("tcp://", "ws://") + options,
            None => running.url() + options,
        };
        Ok(Client { wire: options, codec, channel: Channel::connect(&url).await? })
    }

    fn call<R: ::serde::de::DeserializeOwned + Send + 'static>(
        &self,
        method: &'static switchboard::ClientMethod,
        request: &impl ::serde::Serialize,
    ) -> switchboard::UnaryCall<R> {
        // The only argument goes as an array of one on JSON-RPC.
        let request = match self.wire.ends_with("jsonrpc") {
            true => serde::encode(&[request], self.codec),
            false => serde::encode(request, self.codec),
        };
        self.channel.unary(method, self.codec, request, serde::decode::<R>)
    }

    async fn echo(&self) -> Result<Vec<u8>> {
        soon(self.call::<Vec<u8>>(&ECHO, &[1u8, 2].to_vec())).await.map(switchboard::Response::into_inner)
    }
}

async fn start(server: Server) -> (Running, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    (server.add(probe).listen("tcp://127.0.0.1:0").start().await.expect("start"), seen)
}

fn config_error(result: Result<Running, switchboard::Error>) -> String {
    let error = result.err().expect("refused");
    assert!(error.is_config(), "{error}");
    error.to_string()
}

/// The status of a call that should fail.
fn failed<T>(result: Result<T>) -> Status {
    result.err().expect("the call succeeded")
}
