//! `zmtp-peer TYPE [listen | ADDRESS] [minor=0] [identity=HEX] [MECHANISM]`: one connection of the ZMTP machine, which
//! the cases in `python` drive. The mechanism is `server` or `plain=USERNAME:PASSWORD` for PLAIN, and
//! `curve-server=SECRET` or `curve=SECRET:SERVER` for CURVE; else NULL.
//!
//! Prints `listening on 127.0.0.1:PORT` if it listens, then a line for each event. Reads a command from each line of
//! the standard input. Bytes are in hexadecimal, and `-` is an empty frame.
//!
//! | event | command |
//! | --- | --- |
//! | `ready TYPE MINOR IDENTITY` | `send FRAME…` |
//! | `message FRAME…` | `subscribe TOPIC`, `cancel TOPIC`, `join GROUP`, `leave GROUP` |
//! | `subscribe TOPIC`, `cancel TOPIC`, `join GROUP`, `leave GROUP` | `ping CONTEXT` |
//! | `credentials USERNAME PASSWORD`, `key PUBLIC` | `accept`, `reject TEXT` |
//! | `ping TENTHS`, `pong CONTEXT` | `close` |
//! | `error KIND TEXT`, `closed` | |

mod text;

use bytes::Bytes;
use std::{
    fs::File,
    io::{self, BufRead, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use switchboard_wire::{
    Input, Outbox,
    zmtp::{
        Connection, Credentials, CurveClient, CurveServer, Event, KEY_BYTES, Mechanism, PublicKey,
        Randomness, SecretKey, Settings, SocketType, Version,
    },
};
use text::{hex, words};

/// Time to live of the PINGs that this program sends.
const TTL: Duration = Duration::from_secs(3);

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, address, options @ ..] = &arguments[..] else {
        return Err("usage: zmtp-peer TYPE [listen | ADDRESS] [OPTION…]".into());
    };
    let socket = SocketType::from_name(socket.as_bytes()).ok_or("the socket type is unknown")?;
    let settings = settings(socket, options)?;
    let stream = if address == "listen" {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        say(&format!("listening on {}", listener.local_addr()?));
        listener.accept()?.0
    } else {
        TcpStream::connect(address)?
    };
    stream.set_nodelay(true)?;
    let (sender, inputs) = mpsc::channel();
    let (mut reader, from_socket) = (stream.try_clone()?, sender.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        // A connection that fails ends like one that is closed.
        while let Some(read) = reader.read(&mut buffer).ok().filter(|read| *read > 0) {
            if from_socket.send(Source::Bytes(buffer[..read].to_vec())).is_err() {
                return;
            }
        }
        let _ = from_socket.send(Source::End);
    });
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(Source::Line(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Source::End);
    });
    run(settings, stream, &inputs)
}

/// Something that the connection reacts to.
enum Source {
    Bytes(Vec<u8>),
    End,
    Line(String),
}

fn settings(socket: SocketType, options: &[String]) -> Result<Settings, Error> {
    let mut settings = Settings::new(socket);
    for option in options {
        settings = match option.split_once('=').unwrap_or((option, "")) {
            ("curve", keys) => {
                let (secret, server) = keys.split_once(':').ok_or("the key of the server is missing")?;
                let (secret, server) = (SecretKey::new(key(secret)?), PublicKey::new(key(server)?));
                let keys = CurveClient::new(secret, server, random());
                settings.with_mechanism(Mechanism::CurveClient(keys))
            }
            ("curve-server", secret) => {
                let keys = CurveServer::new(SecretKey::new(key(secret)?), random());
                settings.with_mechanism(Mechanism::CurveServer(keys))
            }
            ("identity", identity) => settings.with_identity(hex(identity)?)?,
            ("minor", "0") => settings.with_version(Version::V3_0),
            ("plain", credentials) => {
                let (username, password) = credentials.split_once(':').ok_or("the password is missing")?;
                let credentials = Credentials::new(hex(username)?, hex(password)?)?;
                settings.with_mechanism(Mechanism::PlainClient(credentials))
            }
            ("server", "") => settings.with_mechanism(Mechanism::PlainServer),
            _ => return Err(format!("{option:?} is not an option").into()),
        };
    }
    Ok(settings)
}

fn key(text: &str) -> Result<[u8; KEY_BYTES], Error> {
    hex(text)?.try_into().map_err(|_| "a key has 32 bytes".into())
}

fn random() -> Randomness {
    let read = |bytes: &mut [u8]| File::open("/dev/urandom")?.read_exact(bytes);
    Randomness::new(move |bytes| read(bytes).map_err(|error| error.to_string()))
}

/// Runs the connection until either side closes it.
fn run(settings: Settings, mut stream: TcpStream, inputs: &mpsc::Receiver<Source>) -> Result<(), Error> {
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let mut connection = Connection::new(Arc::new(settings), &mut out);
    let mut frames = Vec::new();
    loop {
        // The peer may be gone; its end is the next input.
        let _ = stream.write_all(&out.take_all());
        match inputs.recv()? {
            Source::Bytes(bytes) => input.extend(&bytes),
            Source::Line(line) if line == "close" => break,
            Source::Line(line) => command(&mut connection, &line, &mut out)?,
            Source::End => break,
        }
        loop {
            match connection.recv(&mut input, &mut out) {
                Ok(Some(event)) => report(event, &mut frames),
                Ok(None) => break,
                Err(error) => {
                    say(&format!("error {} {}", error.kind().name(), error.message()));
                    let _ = stream.write_all(&out.take_all());
                    break;
                }
            }
        }
        if connection.is_closed() {
            let _ = stream.write_all(&out.take_all());
            break;
        }
    }
    say("closed");
    Ok(())
}

/// Prints an event; a message once its last frame has arrived.
fn report(event: Event, frames: &mut Vec<Bytes>) {
    let one = |name: &str, bytes: &Bytes| say(&format!("{name} {}", words([bytes])));
    match event {
        Event::Cancel(topic) => one("cancel", &topic),
        Event::Credentials(credentials) => {
            let (username, password) = (credentials.username(), credentials.password());
            say(&format!("credentials {}", words([username, password])));
        }
        Event::ClientKey(key) => say(&format!("key {}", words([key.to_bytes()]))),
        Event::Frame { body, more } => {
            frames.push(body);
            if !more {
                say(&format!("message {}", words(frames.drain(..))));
            }
        }
        Event::Join(group) => one("join", &group),
        Event::Leave(group) => one("leave", &group),
        Event::Ping { ttl } => say(&format!("ping {}", ttl.map_or(0, |ttl| ttl.as_millis() / 100))),
        Event::Pong(context) => one("pong", &context),
        Event::Ready(peer) => {
            let minor = u8::from(peer.version == Version::V3_1);
            say(&format!("ready {} {minor} {}", peer.socket, words([&peer.identity])));
        }
        Event::Subscribe(topic) => one("subscribe", &topic),
    }
}

/// Executes a line of the standard input.
fn command(connection: &mut Connection, line: &str, out: &mut Outbox) -> Result<(), Error> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let parts = || rest.split_whitespace().map(hex).collect::<Result<Vec<_>, _>>();
    let one = || hex(rest);
    let sent = match name {
        "accept" => {
            connection.accept(out);
            true
        }
        "cancel" => connection.cancel(&one()?, out),
        "join" => connection.join(&one()?, out),
        "leave" => connection.leave(&one()?, out),
        "ping" => connection.ping(Some(TTL), &one()?, out),
        "reject" => {
            connection.reject(rest, out);
            true
        }
        "send" => connection.send(&parts()?.into_iter().map(Bytes::from).collect::<Vec<_>>(), out),
        "subscribe" => connection.subscribe(&one()?, out),
        _ => return Err(format!("{line:?} is not a command").into()),
    };
    if sent { Ok(()) } else { Err(format!("{line:?} cannot be sent now").into()) }
}

/// Prints a line at once: another program reads it from a pipe.
fn say(line: &str) {
    println!("{line}");
    let _ = io::stdout().flush();
}
