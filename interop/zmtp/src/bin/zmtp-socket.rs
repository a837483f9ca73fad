//! `zmtp-socket TYPE bind|connect ENDPOINT [identity=HEX] [server | plain=HEX:HEX | curve-server=HEX:HEX |
//! curve=HEX:HEX]`: a socket of `switchboard-socket`,
//! which the cases in `python/test_socket.py` drive. The keys of `curve-server` are its secret and the public key of
//! its client, those of `curve` its secret and the public key of the server.
//!
//! Prints `bound ENDPOINT` if it binds. Reads a command from each line of the standard input, and prints a line for
//! each. Bytes are in hexadecimal, and `-` is an empty frame.
//!
//! | command | response |
//! | --- | --- |
//! | `send FRAME…` | `sent` |
//! | `recv` | `message FRAME…` |
//! | `subscribe TOPIC`, `unsubscribe TOPIC` | `done` |
//! | `connections NUMBER`: waits for so many handshakes, and for the ends of all but the last | `connected` |
//! | `stats` | `stats` and the number of dropped messages |
//! | `close` | `closed` |
//!
//! An error prints `error KIND TEXT`.

#[path = "../text.rs"]
mod text;

use std::{io::BufRead, time::Duration};
use switchboard_socket::{
    Event, Message, Socket, SocketOptions, SocketType,
    options::{CurvePublicKey, CurveSecretKey, Security},
};
use text::{hex, words};
use tokio::sync::{mpsc, watch};

type Error = Box<dyn std::error::Error>;

#[switchboard::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, verb, endpoint, options @ ..] = &arguments[..] else {
        return Err("usage: zmtp-socket TYPE bind|connect ENDPOINT [OPTION…]".into());
    };
    let kind = match &**kind {
        "STREAM" => SocketType::Stream,
        kind => SocketType::from_name(kind.as_bytes()).ok_or("the socket type is unknown")?,
    };
    let socket = Socket::new(kind, parse(options)?)?;
    let (count, connections) = watch::channel((0, 0));
    let mut monitor = socket.monitor();
    tokio::spawn(async move {
        while let Some(event) = monitor.next().await {
            count.send_modify(|(made, open): &mut (u64, u64)| match event {
                Event::HandshakeSucceeded { .. } => (*made, *open) = (*made + 1, *open + 1),
                Event::Disconnected { .. } => *open -= 1,
                _ => {}
            });
        }
    });
    match &**verb {
        "bind" => println!("bound {}", socket.bind_to(endpoint).await?),
        "connect" => socket.connect_to(endpoint).await?,
        _ => return Err(format!("{verb:?} is neither bind nor connect").into()),
    }
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match command(&socket, &line, connections.clone()).await {
            Ok(response) => println!("{response}"),
            Err(error) => println!("error {error}"),
        }
        if line == "close" {
            return Ok(());
        }
    }
    socket.close().await;
    Ok(())
}

fn parse(options: &[String]) -> Result<SocketOptions, Error> {
    let mut parsed = SocketOptions::default();
    parsed.reconnect.interval = Duration::from_millis(10);
    parsed.reconnect.interval_max = Duration::from_millis(50);
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("curve", keys) => {
                let (secret, server) = curve_keys(keys)?;
                parsed.security = Security::curve_client(CurveSecretKey::new(secret), server);
            }
            ("curve-server", keys) => {
                let (secret, client) = curve_keys(keys)?;
                let secret = CurveSecretKey::new(secret);
                parsed.security = Security::curve_server(secret, move |key| *key == client);
            }
            ("identity", identity) => parsed.routing.routing_id = hex(identity)?.into(),
            ("mandatory", "") => parsed.routing.mandatory = true,
            ("plain", credentials) => {
                let (username, password) = credentials.split_once(':').ok_or("the password is missing")?;
                parsed.security = Security::plain_client(hex(username)?, hex(password)?)?;
            }
            ("server", "") => {
                parsed.security = Security::plain_server(|credentials| {
                    credentials.username() == b"admin" && credentials.password() == b"secret"
                });
            }
            _ => return Err(format!("{option:?} is not an option").into()),
        }
    }
    Ok(parsed)
}

/// Reads the bytes of a secret key, and a public key.
fn curve_keys(text: &str) -> Result<([u8; 32], CurvePublicKey), Error> {
    let (secret, public) = text.split_once(':').ok_or("the public key is missing")?;
    let bytes = |text| -> Result<[u8; 32], Error> {
        <[u8; 32]>::try_from(hex(text)?).map_err(|_| "a key does not have 32 bytes".into())
    };
    Ok((bytes(secret)?, CurvePublicKey::new(bytes(public)?)))
}

/// Executes a line of the standard input.
async fn command(
    socket: &Socket,
    line: &str,
    mut connections: watch::Receiver<(u64, u64)>,
) -> Result<String, Error> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    match name {
        "close" => {
            socket.close().await;
            Ok("closed".to_owned())
        }
        "connections" => {
            let count: u64 = rest.parse()?;
            connections.wait_for(|(made, open)| *made >= count && *open == 1).await?;
            Ok("connected".to_owned())
        }
        "recv" => Ok(format!("message {}", words(socket.recv().await?.frames()))),
        "send" => {
            let frames = rest.split_whitespace().map(hex).collect::<Result<Vec<_>, _>>()?;
            socket.send(Message::new(frames)).await?;
            Ok("sent".to_owned())
        }
        "stats" => Ok(format!("stats {}", socket.stats().dropped)),
        "subscribe" => {
            socket.subscribe(hex(rest)?)?;
            Ok("done".to_owned())
        }
        "unsubscribe" => {
            socket.unsubscribe(hex(rest)?)?;
            Ok("done".to_owned())
        }
        _ => Err(format!("{line:?} is not a command").into()),
    }
}
