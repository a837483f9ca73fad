//! `zmtp-server [OPTION…]`: a server with the plugin for ZeroMQ, which the cases in `python/` drive.
//!
//! | option | |
//! | --- | --- |
//! | `curve=SECRET:PUBLIC` | connections are encrypted with this secret key; a peer with this public key is `alice` |
//! | `plain` | peers log in as `alice` with `secret` |
//! | `router` | DEALER and ROUTER peers talk to a ROUTER of this program; REQ peers always call services |
//! | `dealer` | REP peers talk to a DEALER of this program |
//! | `pair` | a PAIR peer talks to a PAIR of this program, which returns its messages |
//! | `unix=PATH` | listens on this Unix socket as well |
//! | `tls` | listens with TLS and a certificate of its own as well |
//!
//! Prints `listening on ADDRESS…`, first that of TCP, then that of TLS. Reads a command from each line of the standard
//! input, and prints a line for each. PUSH and PULL peers share the topic `jobs`. Identities and frames are in
//! hexadecimal.
//!
//! | command | response |
//! | --- | --- |
//! | `publish TOPIC TEXT` | `published OFFSET` |
//! | `stats` | `stats` and the counters |
//! | `closed` | `closed` and the numbers of ended connections by reason |
//! | `next` | `entry TOPIC TEXT`, the next entry of any topic since the start |
//! | `receive` | `message IDENTITY FRAME…`, the next message of the ROUTER |
//! | `send IDENTITY FRAME…` | `sent`, or `error` with the status |
//! | `work FRAME…` | `sent`, once the DEALER has sent it to a peer |
//! | `result` | `message FRAME…`, the next message of the DEALER |
//! | `stop` | `stopped` |

#[path = "../text.rs"]
mod text;

use bytes::Bytes;
use std::io::BufRead;
use switchboard::{
    Caller, Codec, Cx, Result, Running, Server, StopOptions, Tls,
    auth::{Basic, CurveKeys},
};
use switchboard_adapter::{
    CurvePublicKey, CurveSecretKey, SocketType, Zmtp, ZmtpDealer, ZmtpRouter, ZmtpRouterOptions,
};
use switchboard_message::{Bus, Delivery, Pattern, Publication, Subscription};
use tokio::sync::mpsc;

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A service on the same port.
#[switchboard::service(name = "interop.v1.Clock")]
trait Clock {
    #[switchboard(read_only)]
    async fn ping(&self, text: String, cx: &Cx) -> Result<String>;
    async fn who(&self, cx: &Cx) -> Result<String>;
    async fn fail(&self, text: String, cx: &Cx) -> Result<String>;
}

struct Echo;

impl Clock for Echo {
    async fn ping(&self, text: String, _: &Cx) -> Result<String> {
        Ok(text)
    }

    async fn who(&self, cx: &Cx) -> Result<String> {
        Ok(cx.caller().map_or_else(String::new, |caller| caller.name.clone()))
    }

    async fn fail(&self, text: String, _: &Cx) -> Result<String> {
        Err(switchboard::Status::not_found(text))
    }
}

/// The running server, and what its commands need.
struct Program {
    bus: Bus,
    zmtp: Zmtp,
    router: Option<ZmtpRouter>,
    dealer: Option<ZmtpDealer>,
    all: Subscription<Bytes>,
}

#[switchboard::main]
async fn main() -> Outcome<()> {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let (mut program, running) = Program::start(&options).await?;
    let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
    let addresses = addresses.iter().filter_map(|address| address.split_once("://")).map(|(_, rest)| rest);
    println!("listening on {}", addresses.collect::<Vec<_>>().join(" "));
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        if line == "stop" {
            break;
        }
        println!("{}", program.command(&line).await?);
    }
    running.stop(StopOptions::new()).await;
    println!("stopped");
    Ok(())
}

impl Program {
    async fn start(options: &[String]) -> Outcome<(Program, Running)> {
        let has = |name: &str| options.iter().any(|option| option == name);
        let bus = Bus::new();
        let all = bus.subscribe_encoded(Pattern::prefix("")).await?;
        let zmtp = Zmtp::new(bus.clone()).pipeline("jobs", "workers")?.services([SocketType::Req]);
        let zmtp = zmtp.default_method("interop.v1.Clock/Ping");
        let others = [SocketType::Dealer, SocketType::Router];
        let (mut zmtp, router) = match has("router") {
            true => {
                let (zmtp, router) = zmtp.router(others, ZmtpRouterOptions::default());
                (zmtp, Some(router))
            }
            false => (zmtp.services(others), None),
        };
        let mut dealer = None;
        if has("dealer") {
            let (with_dealer, own) = zmtp.dealer([SocketType::Rep], ZmtpRouterOptions::default());
            (zmtp, dealer) = (with_dealer, Some(own));
        }
        if has("pair") {
            let (with_pair, mut own) = zmtp.pair(ZmtpRouterOptions::default());
            zmtp = with_pair;
            tokio::spawn(async move {
                while let Some(frames) = own.recv().await {
                    own.send(frames).await.expect("a message with frames");
                }
            });
        }
        let mut server = Server::new().add(ClockServer::new(Echo));
        if has("plain") {
            zmtp = zmtp.plain();
            server = server.auth(Basic::default().user("alice", "secret", Caller::new("alice")));
        }
        if let Some(keys) = options.iter().find_map(|option| option.strip_prefix("curve=")) {
            let (secret, public) = keys.split_once(':').ok_or("the public key is missing")?;
            let key = |text: &str| text::hex(text)?.try_into().map_err(|_| "a key has 32 bytes".to_owned());
            zmtp = zmtp.curve(CurveSecretKey::new(key(secret)?));
            let public = CurvePublicKey::new(key(public)?);
            server = server.auth(CurveKeys::default().key(public, Caller::new("alice")));
        }
        server = server.plugin(zmtp.clone()).listen("tcp://127.0.0.1:0");
        if has("tls") {
            server = server.listen_tls("tcp://127.0.0.1:0", certificate()?);
        }
        if let Some(path) = options.iter().find_map(|option| option.strip_prefix("unix=")) {
            server = server.listen(format!("unix:{path}"));
        }
        Ok((Program { bus, zmtp, router, dealer, all }, server.start().await?))
    }

    /// Returns the response to a command.
    async fn command(&mut self, line: &str) -> Outcome<String> {
        Ok(match line.split(' ').collect::<Vec<_>>()[..] {
            ["publish", topic, text] => {
                let publication = Publication::new(Codec::Raw, text.to_owned());
                format!("published {}", self.bus.publish_encoded(topic, publication).await?.offset)
            }
            ["stats"] => format!("stats {:?}", self.zmtp.stats()),
            ["closed"] => {
                let counts = self.zmtp.closed();
                let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name}: {count}")).collect();
                format!("closed {}", counts.join(", "))
            }
            ["next"] => match self.all.next().await? {
                Some(Delivery::Entry(entry)) => {
                    format!("entry {} {}", entry.topic(), String::from_utf8_lossy(&entry))
                }
                other => format!("other {other:?}"),
            },
            ["receive"] => {
                let router = self.router.as_mut().ok_or("start the server with the option router")?;
                let message = router.recv().await.ok_or("the router has ended")?;
                format!("message {} {}", text::words([&message.identity]), text::words(&message.frames))
            }
            ["send", identity, ref frames @ ..] => {
                let router = self.router.as_ref().ok_or("start the server with the option router")?;
                let frames = frames.iter().map(|frame| text::hex(frame).map(Bytes::from));
                let frames = frames.collect::<std::result::Result<Vec<_>, _>>()?;
                match router.send(&text::hex(identity)?, frames).await {
                    Ok(()) => "sent".to_owned(),
                    Err(status) => format!("error {status}"),
                }
            }
            ["work", ref frames @ ..] => {
                let dealer = self.dealer.as_ref().ok_or("start the server with the option dealer")?;
                let frames = frames.iter().map(|frame| text::hex(frame).map(Bytes::from));
                dealer.send(frames.collect::<std::result::Result<Vec<_>, _>>()?).await?;
                "sent".to_owned()
            }
            ["result"] => {
                let dealer = self.dealer.as_mut().ok_or("start the server with the option dealer")?;
                format!("message {}", text::words(dealer.recv().await.ok_or("the dealer has ended")?))
            }
            _ => format!("unknown command {line:?}"),
        })
    }
}

/// Makes a certificate for this process.
fn certificate() -> Outcome<Tls> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let folder = std::env::temp_dir().join(format!("zmtp-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok(Tls::files(certificate, key))
}
