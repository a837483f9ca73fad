//! Every wire at once on one port, with silent connections between them, and callers whose bytes come one at
//! a time: no caller delays another.
//!
//! As many calls as a test run has time for; `EVERY_WIRE_SECONDS=60` goes on for so long. Programs that others have
//! written call beside them where `EVERY_WIRE_PROGRAMS` names some: see [`Program`].
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use bytes::Bytes;
use serde_json::Value;
use std::{net::SocketAddr, process, time::Duration};
use support::{
    mirror::{Mirror, SHOW},
    raw::soon,
};
use switchboard::{Channel, Codec, Server};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

/// Channels, by scheme and options.
const CHANNELS: [&str; 28] = [
    "tcp://ADDRESS",
    "tcp://ADDRESS?wire=baidu_std",
    "tcp://ADDRESS?wire=baidu_std&codec=json&names=short&checksum=crc32c",
    "tcp://ADDRESS?wire=connect",
    "tcp://ADDRESS?wire=connect&codec=json",
    "tcp://ADDRESS?wire=connect&http=1",
    "tcp://ADDRESS?wire=erpc",
    "tcp://ADDRESS?wire=erpc&framing=json&codec=json",
    "tcp://ADDRESS?wire=erpc&framing=proto&filter=gzip",
    "tcp://ADDRESS?wire=grpc",
    "tcp://ADDRESS?wire=grpc-web",
    "tcp://ADDRESS?wire=grpc-web&http=1",
    "tcp://ADDRESS?wire=grpc-web-text",
    "tcp://ADDRESS?wire=hulu&index=test.Mirror/Show:0",
    "tcp://ADDRESS?wire=jsonrpc",
    "tcp://ADDRESS?wire=kiss&function=test.Mirror/Show:1",
    "tcp://ADDRESS?wire=kiss&function=test.Mirror/Show:1&snappy=forced",
    "tcp://ADDRESS?wire=rpcx",
    "tcp://ADDRESS?wire=rpcx&codec=json&names=short",
    "tcp://ADDRESS?wire=rpcx&network=http",
    "tcp://ADDRESS?wire=sofa&compression=gzip",
    "tcp://ADDRESS?wire=thrift",
    "tcp://ADDRESS?wire=thrift&framed=false",
    "tcp://ADDRESS?wire=thrift&protocol=compact",
    "tcp://ADDRESS?wire=thrift&protocol=header",
    "ws://ADDRESS",
    "ws://ADDRESS?wire=jsonrpc",
    "ws://ADDRESS?wire=rpcx",
];
/// Callers of each wire that share a channel.
const CALLERS: u64 = 4;
/// Calls of each, and of those that are slow, unless a time is set.
const CALLS: [u64; 2] = [100, 10];
/// A machine with much else to do opens connections slowly.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of silent connections.
const SILENT: usize = 50;

/// A caller.
enum Caller {
    Channel(Channel),
    /// HTTP/JSON on a connection that is kept.
    HttpJson(BufReader<TcpStream>),
    /// JSON-RPC on bare TCP.
    Lines(BufReader<TcpStream>),
}

impl Caller {
    /// One of every kind.
    async fn all(address: SocketAddr) -> Vec<(&'static str, Caller)> {
        let mut callers = Vec::new();
        for name in CHANNELS {
            let url = name.replace("ADDRESS", &address.to_string());
            let channel = Channel::builder(&url).connect_timeout(PATIENCE).connect().await.unwrap();
            callers.push((name, Caller::Channel(channel)));
        }
        callers.extend(Caller::by_hand(address).await);
        callers
    }

    async fn by_hand(address: SocketAddr) -> [(&'static str, Caller); 2] {
        let open = async || BufReader::new(TcpStream::connect(address).await.unwrap());
        [("HTTP/JSON", Caller::HttpJson(open().await)), ("JSON-RPC on TCP", Caller::Lines(open().await))]
    }

    /// Calls with a number, which comes back.
    async fn call(&mut self, number: u64) -> std::result::Result<(), String> {
        let json = format!("{{\"n\":{number}}}");
        let (sent, came) = match self {
            Caller::Channel(channel) => {
                let codec = channel.codec(Codec::Proto);
                let sent = message(number, codec, &json);
                let call = channel.unary(&SHOW, codec, Ok(sent.clone()), |_, bytes| Ok(bytes));
                (sent, call.await.map_err(|status| status.to_string())?.into_inner())
            }
            Caller::HttpJson(io) => {
                let head = "POST /test.Mirror/Show HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
                let request = format!("{head}content-length: {}\r\n\r\n{json}", json.len());
                io.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
                (json.into(), body(io).await.map_err(|error| error.to_string())?)
            }
            Caller::Lines(io) => {
                let (head, tail) = (r#"{"jsonrpc":"2.0","method":"test.Mirror.Show","params":"#, "}\n");
                let request = format!("{head}{json},\"id\":{number}{tail}");
                io.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
                let mut line = String::new();
                io.read_line(&mut line).await.map_err(|error| error.to_string())?;
                let answer: Value =
                    serde_json::from_str(&line).map_err(|error| format!("{line:?}: {error}"))?;
                (json.into(), answer["result"].to_string().into())
            }
        };
        if sent == came { Ok(()) } else { Err(format!("{came:?} came for {sent:?}")) }
    }
}

/// The body of a response of HTTP/1.1 that says its length.
async fn body(io: &mut BufReader<TcpStream>) -> std::io::Result<Bytes> {
    let mut len = 0;
    loop {
        let mut line = String::new();
        io.read_line(&mut line).await?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    io.read_exact(&mut body).await?;
    Ok(body.into())
}

/// A message with a number in it.
fn message(number: u64, codec: Codec, json: &str) -> Bytes {
    match codec {
        Codec::Json => json.to_owned().into(),
        // Field 1 of a struct, 64 bits, and its end.
        Codec::Thrift => [&[10, 0, 1][..], &number.to_be_bytes(), &[0]].concat().into(),
        // Field 1 of a message, 64 bits.
        _ => [&[9][..], &number.to_le_bytes()].concat().into(),
    }
}

/// Where bytes go on to `server` one at a time, and come back as they are.
async fn slow_line(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(server).await.unwrap();
            far.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let ((near_in, mut near_out), (mut far_in, mut far_out)) =
                    (near.into_split(), far.into_split());
                let up = async {
                    let mut near_in = BufReader::new(near_in);
                    while let Ok(byte) = near_in.read_u8().await {
                        far_out.write_all(&[byte]).await?;
                        tokio::task::yield_now().await;
                    }
                    far_out.shutdown().await
                };
                let down = tokio::io::copy(&mut far_in, &mut near_out);
                // The first side that closes ends both: nothing is sent after that.
                tokio::select! { _ = up => {}, _ = down => {} }
            });
        }
    });
    address
}

/// A connection that says nothing, and another once the server has had enough of it.
async fn silent(server: SocketAddr) {
    loop {
        let mut io = TcpStream::connect(server).await.unwrap();
        assert_eq!(io.read(&mut [0; 16]).await.unwrap_or(0), 0, "the server sent bytes without a request");
    }
}

/// A program and its arguments, in which `ADDRESS` and `PORT` are those of the server. It makes some calls, and says by
/// its exit code whether all were answered well.
type Program = Vec<String>;

/// Parses `EVERY_WIRE_PROGRAMS`: a line for each program, with tabs between the words.
fn programs() -> Vec<Program> {
    let set = std::env::var("EVERY_WIRE_PROGRAMS").unwrap_or_default();
    set.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Runs a program, and again when it has ended; says how often.
async fn run_again(
    program: &Program,
    server: SocketAddr,
    length: Length,
) -> std::result::Result<u64, String> {
    let filled = |word: &String| {
        word.replace("ADDRESS", &server.to_string()).replace("PORT", &server.port().to_string())
    };
    let words: Vec<_> = program.iter().map(filled).collect();
    let mut runs = 0;
    while length.goes_on(runs, 1) {
        let mut command = process::Command::new(&words[0]);
        command.args(&words[1..]).stdin(process::Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        if !output.status.success() {
            let [said, complained] =
                [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            return Err(format!("{words:?}: {}\n{said}{complained}", output.status));
        }
        runs += 1;
    }
    Ok(runs)
}

/// How long callers go on.
#[derive(Clone, Copy)]
struct Length(Option<Instant>);

impl Length {
    fn from_environment() -> Length {
        let seconds = std::env::var("EVERY_WIRE_SECONDS").ok();
        Length(seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.parse().unwrap())))
    }

    /// Returns whether there is another call after `made`; `calls` are enough where no time is set.
    fn goes_on(self, made: u64, calls: u64) -> bool {
        self.0.map_or(made < calls, |end| Instant::now() < end)
    }
}

#[tokio::test]
async fn every_wire_at_once_among_silent_and_slow_connections() {
    let server = Server::new().add(Mirror).alias("kiss/1", SHOW.path).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let address: SocketAddr = running.url().trim_start_matches("tcp://").parse().unwrap();
    let slow = slow_line(address).await;
    let mut around = JoinSet::new();
    for _ in 0..SILENT {
        around.spawn(silent(address));
    }
    // Opened now and used when all is over.
    let mut late = Caller::all(address).await;
    // Before the first call: the slow callers wait for all others between any two bytes.
    let (plain, bytewise) = (Caller::all(address).await, Caller::all(slow).await);

    let length = Length::from_environment();
    let mut foreign = JoinSet::new();
    for program in programs() {
        foreign.spawn(async move {
            let runs = run_again(&program, address, length).await?;
            println!("{runs} times {}", program.join(" "));
            std::result::Result::<(), String>::Ok(())
        });
    }
    let mut callers = JoinSet::new();
    let mut begin = |name: &'static str, mut caller: Caller, first: u64, calls: u64| {
        callers.spawn(async move {
            let mut made = 0;
            while length.goes_on(made, calls) {
                soon(caller.call(first + made)).await.map_err(|why| format!("{name}: {why}"))?;
                made += 1;
            }
            std::result::Result::<u64, String>::Ok(made)
        });
    };
    for (name, caller) in plain {
        match caller {
            Caller::Channel(channel) => {
                for at in 0..CALLERS {
                    begin(name, Caller::Channel(channel.clone()), at << 32, CALLS[0]);
                }
            }
            by_hand => begin(name, by_hand, 0, CALLS[0]),
        }
    }
    for (name, caller) in bytewise {
        begin(name, caller, 1 << 48, CALLS[1]);
    }
    let (mut calls, mut wrong) = (0, Vec::new());
    while let Some(ended) = callers.join_next().await {
        match ended.unwrap() {
            Ok(made) => calls += made,
            Err(why) => wrong.push(why),
        }
    }
    while let Some(ended) = foreign.join_next().await {
        wrong.extend(ended.unwrap().err());
    }
    for (name, caller) in &mut late {
        // Those without a channel are aborted like connections that send nothing.
        if let Caller::Channel(_) = caller
            && let Err(why) = soon(caller.call(7)).await
        {
            wrong.push(format!("{name}, late: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} callers failed:\n{}", wrong.len(), wrong.join("\n"));
    assert!(around.try_join_next().is_none(), "silent connections go on");
    let stats = running.stats();
    assert_eq!(stats.protocol_errors, 0);
    println!("{calls} calls, {} silent connections aborted", stats.unknown_protocol);
}
