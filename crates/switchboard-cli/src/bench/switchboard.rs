//! Switchboard as a subject: its server and its clients.

use super::{
    load::{Caller, Load},
    options::{MESSAGE_BYTES, ServerArgs},
    process,
};
use bytes::Bytes;
use switchboard::{Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result as SResult, Service, ServiceInfo, Status};
use std::time::Duration;

static INFO: ServiceInfo = ServiceInfo { name: "bench.v1.Raw", methods: &[MethodInfo::new("Echo", Kind::Unary)], descriptor: &[] };
static ECHO: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "bench.v1.Raw/Echo" };
struct Raw;
impl Service for Raw {
    fn info(&self) -> &'static ServiceInfo { &INFO }
    async fn call(&self, call: Call) -> SResult<Reply> {
        match call.method() {
            0 => { let (b, cx) = call.into_one()?; Ok(Reply::one(b, cx)) }
            _ => Err(Status::unimplemented("")),
        }
    }
}

/// Serves what the loads of this module call; prints its address first.
///
/// # Errors
/// When it cannot listen or accept.
pub(super) fn serve(args: &ServerArgs) -> Result<(), String> {
    switchboard::Runtime::new().workers(args.workers as usize).run(async move {
        let running = switchboard::Server::new().add(Raw).listen("tcp://127.0.0.1:0").start().await.map_err(|e| e.to_string())?;
        process::announce(running.url());
        process::end_with_parent();
        std::future::pending().await
    })
}

#[derive(Clone)]
struct Echo { address: String, payload: Bytes }
struct EchoCaller { channel: Channel, payload: Bytes }
impl Load for Echo {
    type Connection = Channel;
    type Caller = EchoCaller;
    async fn connect(&self) -> Result<Channel, String> {
        Channel::builder(&self.address).connections(1).connect().await.map_err(|e| e.to_string())
    }
    fn caller(&self, c: &Channel) -> EchoCaller { EchoCaller { channel: c.clone(), payload: self.payload.clone() } }
}
impl Caller for EchoCaller {
    async fn call(&mut self) -> Result<(), String> {
        let r = self.channel.unary(&ECHO, Codec::Proto, Ok(self.payload.clone()), |_, b| Ok(b)).timeout(Duration::from_secs(10)).await.map_err(|e| e.to_string())?;
        if *r != self.payload { return Err("wrong".into()) }
        Ok(())
    }
}

/// Echo calls of `payload`.
pub(super) fn echo(address: &str, payload: Bytes) -> impl Load {
    Echo { address: address.to_owned(), payload }
}

/// Calls with the benchmark message.
pub(super) fn message(address: &str) -> impl Load {
    echo(address, Bytes::from(vec![7; MESSAGE_BYTES]))
}
