//! The service that hostile peers attack, and the server that has it.

use crate::support::certificates::Authority;
use bytes::Bytes;
use std::{net::SocketAddr, time::Duration};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Kind, Limit, MethodInfo, Reply, Result, Running, Sender, Server,
    Service, ServiceInfo, stream::stream_reply,
};

pub static TARGET: ServiceInfo = ServiceInfo {
    name: "test.Target",
    methods: &[
        MethodInfo::new("Show", Kind::Unary),
        MethodInfo::new("Hold", Kind::Unary),
        MethodInfo::new("Feed", Kind::ServerStream),
        MethodInfo::new("Keep", Kind::ClientStream),
        MethodInfo::new("Note", Kind::Unary).oneway(),
    ],
    descriptor: &[],
};
pub static SHOW: ClientMethod = ClientMethod { service: &TARGET, index: 0, path: "test.Target/Show" };

/// The largest message that the server takes.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Memory that all peers together may make the server hold.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

const LIMITS: [(Limit, u64); 4] = [
    (Limit::CallsMax, 1000),
    (Limit::MemoryBytesMax, MEMORY_BYTES_MAX),
    (Limit::MessageBytesMax, MESSAGE_BYTES_MAX),
    (Limit::OutboxBytesMax, 256 << 10),
];

/// Returns requests, holds calls, feeds and takes streams without end.
struct Target;

impl Service for Target {
    fn info(&self) -> &'static ServiceInfo {
        &TARGET
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        match call.method() {
            0 => {
                let (message, cx) = call.into_one()?;
                Ok(Reply::one(message, cx))
            }
            1 => std::future::pending().await,
            2 => {
                let (message, cx) = call.into_one()?;
                let item = |item: &Bytes, _| Ok(item.clone());
                Ok(stream_reply(cx, codec, item, move |_, out: Sender<Bytes>| async move {
                    loop {
                        out.send(message.clone()).await?;
                    }
                }))
            }
            3 => {
                let _unread = call.into_many();
                std::future::pending().await
            }
            _ => {
                let (_, cx) = call.into_one()?;
                Ok(Reply::one(Bytes::new(), cx))
            }
        }
    }
}

/// A server of the target whose connections are tasks of this thread.
pub struct Served {
    pub running: Running,
    pub address: SocketAddr,
    authority: Option<Authority>,
}

impl Served {
    pub async fn start(tls: bool) -> Served {
        let authority = tls.then(|| Authority::new("test authority"));
        let server = Server::new().add(Target).alias("kiss/1", SHOW.path).alias("kiss/2", "test.Target/Hold");
        let server = match &authority {
            Some(authority) => server.listen_tls("tcp://127.0.0.1:0", authority.issue("127.0.0.1").tls()),
            None => server.listen("tcp://127.0.0.1:0"),
        };
        let server = LIMITS.iter().fold(server, |server, (limit, value)| server.limit(*limit, *value));
        let running = server.websocket_deflate().start().await.unwrap();
        let address = running.url().rsplit('/').next().unwrap().parse().unwrap();
        Served { running, address, authority }
    }

    /// A channel with one connection, at `url` with the server's address in it.
    pub async fn channel(&self, url: &str) -> Channel {
        let url = url.replace("ADDRESS", &self.address.to_string());
        let builder = Channel::builder(&url).connections(1).connect_timeout(Duration::from_secs(20));
        let builder = match &self.authority {
            Some(authority) => builder.ca(authority.ca()),
            None => builder,
        };
        builder.connect().await.unwrap()
    }
}

/// A message with a number in it, in any codec.
pub fn message(number: u64, codec: Codec) -> Bytes {
    match codec {
        Codec::Json => format!("{{\"n\":{number}}}").into(),
        // Field 1 of a struct, 64 bits, and its end.
        Codec::Thrift => [&[10, 0, 1][..], &number.to_be_bytes(), &[0]].concat().into(),
        // Field 1 of a message, 64 bits.
        _ => [&[9][..], &number.to_le_bytes()].concat().into(),
    }
}

/// Calls with a number. Describes the reply if it is another one.
pub async fn show(channel: &Channel, number: u64) -> std::result::Result<(), String> {
    let codec = channel.codec(Codec::Proto);
    let sent = message(number, codec);
    match channel.unary(&SHOW, codec, Ok(sent.clone()), |_, bytes| Ok(bytes)).await {
        Ok(came) if *came == sent => Ok(()),
        Ok(came) => Err(format!("the reply to {sent:?} is {:?}", *came)),
        Err(status) => Err(status.to_string()),
    }
}
