//! A transport of an application: pipes through a queue of this process.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::io;
use support::{ECHO, Probe, ask, raw::soon};
use switchboard::{
    Address, Channel, Server,
    transport::{BoxFuture, Connector, Listener, Pipe},
};
use tokio::{io::DuplexStream, sync::mpsc};

struct Queue(mpsc::Receiver<DuplexStream>);

impl Listener for Queue {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Pipe>, String)>> {
        Box::pin(async {
            match self.0.recv().await {
                Some(pipe) => Ok((Box::new(pipe) as Box<dyn Pipe>, "queue:".to_owned())),
                None => std::future::pending().await,
            }
        })
    }
}

struct Opener(mpsc::Sender<DuplexStream>);

impl Connector for Opener {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Pipe>>> {
        Box::pin(async move {
            assert!(
                matches!(address, Address::Tcp(host, 1) | Address::WebSocket(host, 1, _) if host == "queue")
            );
            let (near, far) = tokio::io::duplex(1 << 16);
            self.0.send(far).await.map_err(io::Error::other)?;
            Ok(Box::new(near) as Box<dyn Pipe>)
        })
    }
}

#[tokio::test]
async fn a_transport_of_an_application_carries_every_wire() {
    let (sender, receiver) = mpsc::channel(8);
    let server =
        Server::new().add(Probe::default()).listen_on("tcp://queue:1?wires=native,grpc", Queue(receiver));
    let running = server.start().await.unwrap();
    assert_eq!(running.url(), "tcp://queue:1");
    for url in ["tcp://queue:1", "ws://queue:1", "tcp://queue:1,tcp://queue:1"] {
        let channel = Channel::builder(url).connector(Opener(sender.clone())).connect().await.unwrap();
        assert_eq!(soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8, 2])).await.unwrap(), [1, 2], "{url}");
    }
    let channel =
        Channel::builder("tcp://queue:1?wire=grpc").connector(Opener(sender)).connect().await.unwrap();
    let codec = channel.codec(switchboard::Codec::Postcard);
    let request = switchboard::codec::serde::encode(&vec![3u8], codec);
    let call = channel.unary(&ECHO, codec, request, switchboard::codec::serde::decode::<Vec<u8>>);
    assert_eq!(*soon(call).await.unwrap(), [3]);
    let peers = running.stats();
    assert!(peers.protocols.iter().any(|protocol| protocol.protocol == "http2" && protocol.connections == 1));
}
