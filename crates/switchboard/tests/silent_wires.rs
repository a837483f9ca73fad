//! Channels to wires that a server detects by the first bytes of the client, when the first call comes late.
#![cfg(feature = "wires")]

use bytes::Bytes;
use std::time::Duration;
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, MethodInfo, Reply, Result, Server, Service, ServiceInfo,
    StopOptions,
};

static INFO: ServiceInfo =
    ServiceInfo { name: "test.Mirror", methods: &[MethodInfo::new("Show", Kind::Unary)], descriptor: &[] };
static SHOW: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Mirror/Show" };

struct Mirror;

impl Service for Mirror {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (message, cx) = call.into_one()?;
        Ok(Reply::one(message, cx))
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_detect_the_wire_close_no_connection_before_its_first_call() {
    for wire in ["baidu_std", "rpcx", "thrift"] {
        for (kind, options) in [("one", ""), ("fleet", "&balance=random")] {
            let address = format!("memory://silent-{wire}-{kind}");
            let running = Server::new().add(Mirror).listen(&address).start().await.unwrap();
            let channel = Channel::connect(&format!("{address}?wire={wire}{options}")).await.unwrap();
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_secs(60)).await;
                // An empty struct in Thrift.
                let (codec, message) = (channel.codec(Codec::Proto), Bytes::from_static(&[0]));
                let call = channel.unary(&SHOW, codec, Ok(message.clone()), |_, reply| Ok(reply));
                let reply = call.await.unwrap();
                assert_eq!((&*reply, reply.attempts()), (&message, 1), "{wire}{options}");
            }
            assert_eq!(running.stats().unknown_protocol, 0, "{wire}{options}");
            drop(channel);
            running.stop(StopOptions::new().drain(Duration::ZERO).close(Duration::from_secs(60))).await;
        }
    }
}
