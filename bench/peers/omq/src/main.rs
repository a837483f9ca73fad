//! omq-tokio, against which `switchboard bench bus` measures. The driver of a socket runs on the runtime of the
//! program, on the thread that sends or receives.

use bytes::Bytes;
use omq_tokio::{Message, Options, Socket, SocketType};
use socketpeer::{Kind, Result, Sockets, failed};
use std::process::ExitCode;

#[derive(Clone)]
struct Omq;

fn kind(kind: Kind) -> SocketType {
    match kind {
        Kind::Dealer => SocketType::Dealer,
        Kind::Pub => SocketType::Pub,
        Kind::Pull => SocketType::Pull,
        Kind::Push => SocketType::Push,
        Kind::Rep => SocketType::Rep,
        Kind::Req => SocketType::Req,
        Kind::Router => SocketType::Router,
        Kind::Sub => SocketType::Sub,
    }
}

impl Sockets for Omq {
    type Socket = Socket;
    type Message = Message;

    async fn open(&self, of: Kind) -> Result<Socket> {
        let mut options = Options::new().send_hwm(1000).recv_hwm(1000);
        options.xpub_nodrop = of == Kind::Pub;
        let socket = Socket::try_new(kind(of), options).map_err(failed)?;
        if of == Kind::Sub {
            socket.subscribe(Bytes::new()).await.map_err(failed)?;
        }
        Ok(socket)
    }

    async fn bind(&self, socket: &Socket, endpoint: &str) -> Result<String> {
        socket.bind(endpoint).await.map_err(failed)?;
        socket
            .last_bound_endpoint()
            .map(|endpoint| endpoint.to_string())
            .ok_or_else(|| "not bound".to_owned())
    }

    async fn connect(&self, socket: &Socket, endpoint: &str) -> Result<()> {
        socket.connect(endpoint).await.map(|_| ()).map_err(failed)
    }

    async fn send(&self, socket: &Socket, body: Bytes) -> Result<()> {
        socket.send(Message::single(body)).await.map_err(failed)
    }

    async fn receive(&self, socket: &Socket) -> Result<Message> {
        socket.recv().await.map_err(failed)
    }

    fn body<'a>(&self, message: &'a Message) -> &'a [u8] {
        message.len().checked_sub(1).and_then(|last| message.part_slice(last)).unwrap_or_default()
    }

    async fn echo(&self, socket: &Socket) -> Result<()> {
        let message = socket.recv().await.map_err(failed)?;
        socket.send(message).await.map_err(failed)
    }
}

fn main() -> ExitCode {
    socketpeer::main(|| Ok(Omq))
}
