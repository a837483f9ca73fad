//! JSON texts both ways: lines on bare TCP, or text messages of a WebSocket.

use bytes::BytesMut;
use std::hash::{BuildHasher, RandomState};
use switchboard_wire::{
    Input, Outbox,
    websocket::{Event, Handshake, Kind, Limits, Role, WebSocket},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Longest text that is taken.
const TEXT_MAX: u64 = 4 << 20;

/// A connection that carries texts. Not cancel safe: a call that is given up leaves its answers behind.
pub(super) enum Texts {
    Lines(BufReader<TcpStream>),
    Messages(Box<Messages>),
}

pub(super) struct Messages {
    stream: TcpStream,
    machine: WebSocket,
    input: Input,
    payload: BytesMut,
    out: Outbox,
}

impl Texts {
    /// Lines on bare TCP.
    pub(super) async fn lines(address: &str) -> Result<Texts, String> {
        Ok(Texts::Lines(BufReader::new(dial(address).await?)))
    }

    /// Messages of a WebSocket with this sub-protocol.
    pub(super) async fn websocket(address: &str, protocol: &'static str) -> Result<Texts, String> {
        let mut stream = dial(address).await?;
        let random = RandomState::new();
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
        nonce[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
        let handshake = Handshake::new(nonce, protocol);
        stream.write_all(handshake.request(address, "/").as_bytes()).await.map_err(text)?;
        let mut input = Input::default();
        while handshake.answer(&mut input)?.is_none() {
            read(&mut stream, &mut input).await?;
        }
        let limits = Limits { frame_bytes_max: TEXT_MAX, message_bytes_max: TEXT_MAX };
        let machine = WebSocket::new(Role::Client { seed: random.hash_one(2) }, limits);
        let (payload, out) = (BytesMut::new(), Outbox::new());
        Ok(Texts::Messages(Box::new(Messages { stream, machine, input, payload, out })))
    }

    pub(super) async fn send(&mut self, json: &str) -> Result<(), String> {
        match self {
            Texts::Lines(stream) => stream.write_all(format!("{json}\n").as_bytes()).await.map_err(text),
            Texts::Messages(messages) => {
                messages.machine.send(Kind::Text, &[json.as_bytes()], &mut messages.out);
                messages.flush().await
            }
        }
    }

    pub(super) async fn next(&mut self) -> Result<String, String> {
        match self {
            Texts::Lines(stream) => {
                let mut line = String::new();
                let read = stream.take(TEXT_MAX).read_line(&mut line).await.map_err(text)?;
                if read == 0 { Err(ended()) } else { Ok(line) }
            }
            Texts::Messages(messages) => messages.next().await,
        }
    }
}

impl Messages {
    async fn next(&mut self) -> Result<String, String> {
        loop {
            let event = self.machine.recv(&mut self.input, &mut self.payload, &mut self.out);
            let event = event.map_err(|fatal| fatal.to_string());
            // The answer to a PING, or what was wrong.
            self.flush().await?;
            match event? {
                Some(Event::Data { last: true, .. }) => {
                    let payload = self.payload.split().to_vec();
                    return String::from_utf8(payload).map_err(text);
                }
                Some(Event::Closed(_)) => return Err(ended()),
                Some(_) => {}
                None => read(&mut self.stream, &mut self.input).await?,
            }
        }
    }

    async fn flush(&mut self) -> Result<(), String> {
        while !self.out.is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let filled = self.out.fill(&mut slices);
            let written = self.stream.write_vectored(&slices[..filled]).await.map_err(text)?;
            self.out.advance(written);
        }
        Ok(())
    }
}

async fn dial(address: &str) -> Result<TcpStream, String> {
    let stream =
        TcpStream::connect(address).await.map_err(|error| format!("connect to {address}: {error}"))?;
    stream.set_nodelay(true).map_err(text)?;
    Ok(stream)
}

async fn read(stream: &mut TcpStream, input: &mut Input) -> Result<(), String> {
    match stream.read_buf(input.buffer()).await {
        Ok(0) => Err(ended()),
        Ok(_) => Ok(()),
        Err(error) => Err(text(error)),
    }
}

fn ended() -> String {
    "the server ended the connection".to_owned()
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}
