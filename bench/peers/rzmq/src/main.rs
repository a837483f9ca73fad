//! rzmq, against which `switchboard bench bus` measures: on tokio, with its sessions on the thread that sends or
//! receives. The backend on io_uring is a feature that is off by default.

use bytes::Bytes;
use rzmq::{
    Context, Msg, Socket, SocketType, ZmqError,
    socket::options::{LAST_ENDPOINT, RCVHWM, SNDHWM, SUBSCRIBE, XPUB_NODROP},
};
use socketpeer::{Kind, Result, Sockets, failed};
use std::process::ExitCode;

#[derive(Clone)]
struct Rzmq(Context);

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

/// Frames of a message.
enum Frames {
    One(Msg),
    Many(Vec<Msg>),
}

impl Sockets for Rzmq {
    type Socket = (Socket, Kind);
    type Message = Frames;

    async fn open(&self, of: Kind) -> Result<Self::Socket> {
        let socket = self.0.socket(kind(of)).map_err(failed)?;
        let set = async {
            socket.set_option_raw(SNDHWM, &1000i32.to_ne_bytes()).await?;
            socket.set_option_raw(RCVHWM, &1000i32.to_ne_bytes()).await?;
            if of == Kind::Pub {
                socket.set_option_raw(XPUB_NODROP, &1i32.to_ne_bytes()).await?;
            }
            if of == Kind::Sub {
                socket.set_option_raw(SUBSCRIBE, b"").await?;
            }
            Ok::<_, ZmqError>(())
        };
        set.await.map_err(failed)?;
        Ok((socket, of))
    }

    async fn bind(&self, (socket, _): &Self::Socket, endpoint: &str) -> Result<String> {
        socket.bind(endpoint).await.map_err(failed)?;
        let bound = socket.get_option(LAST_ENDPOINT).await.map_err(failed)?;
        Ok(String::from_utf8_lossy(&bound).trim_end_matches('\0').to_owned())
    }

    async fn connect(&self, (socket, _): &Self::Socket, endpoint: &str) -> Result<()> {
        socket.connect(endpoint).await.map_err(failed)
    }

    async fn send(&self, (socket, _): &Self::Socket, body: Bytes) -> Result<()> {
        socket.send(Msg::from_bytes(body)).await.map_err(failed)
    }

    async fn receive(&self, (socket, kind): &Self::Socket) -> Result<Frames> {
        // DEALER and ROUTER add and strip the empty delimiter themselves, for whole messages.
        match kind {
            Kind::Dealer => socket.recv_multipart().await.map(Frames::Many).map_err(failed),
            _ => socket.recv().await.map(Frames::One).map_err(failed),
        }
    }

    fn body<'a>(&self, message: &'a Frames) -> &'a [u8] {
        match message {
            Frames::One(frame) => frame.data(),
            Frames::Many(frames) => frames.last().and_then(Msg::data),
        }
        .unwrap_or_default()
    }

    async fn echo(&self, (socket, kind): &Self::Socket) -> Result<()> {
        match kind {
            Kind::Router => {
                let frames = socket.recv_multipart().await.map_err(failed)?;
                socket.send_multipart(frames).await.map_err(failed)
            }
            _ => {
                let message = socket.recv().await.map_err(failed)?;
                socket.send(message).await.map_err(failed)
            }
        }
    }
}

fn main() -> ExitCode {
    socketpeer::main(|| Context::new().map(Rzmq).map_err(failed))
}
