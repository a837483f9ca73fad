//! A plugin whose peers call the services of its server.
//!
//! ```text
//! lines                the first line of a peer
//! login TOKEN          "welcome NAME", or an error
//! call METHOD JSON     "ok JSON", or an error; METHOD may have a time limit: METHOD@MILLISECONDS
//! note METHOD JSON     a call without a response
//! error CODE TEXT      the response to a failed call or login
//! ```

use super::support::{Probe, raw::soon};
use std::{io, sync::Arc, time::Duration};
use switchboard::{
    Codec, Limit, Metadata, Running, Server, Status, StopOptions,
    auth::{Caller, Tokens},
    guard::{Rate, Rule},
    plugin::{Plugin, PluginContext, PluginServer, ServiceCall, Services},
    wire::{Input, WireSpec, starts},
};
use switchboard_core::Peer;
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Engines, Handle, Options, State, SubscriberId,
    Subscribers,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

static LINES: WireSpec = WireSpec {
    title: "calls in lines",
    sniff: Some(|prefix| starts(prefix, b"lines\n")),
    ..WireSpec::named("lines")
};

struct Lines;

impl Plugin for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&LINES]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let services = context.services;
        let make = move |engine| Calls { services: services.clone(), engine, peers: Vec::new() };
        Ok(Arc::new(Engines::new(Options::default(), Some(context.memory), make)))
    }
}

struct Calls {
    services: Arc<dyn Services>,
    engine: Handle<Calls>,
    peers: Vec<(SubscriberId, Arc<Peer>, Metadata)>,
}

impl Calls {
    /// Begins what a line demands; the line of the response goes to the mailbox.
    fn line(&mut self, id: SubscriberId, line: &str) {
        let Some((_, peer, metadata)) = self.peers.iter_mut().find(|(known, ..)| *known == id) else {
            return;
        };
        let (engine, services) = (self.engine.clone(), self.services.clone());
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let failed =
            |status: Status| format!("error {} {}", status.code().name().to_uppercase(), status.message());
        if verb == "login" {
            metadata.remove("authorization");
            metadata.insert("authorization", format!("Bearer {rest}")).unwrap();
            let login = services.authenticate(peer, metadata.clone());
            tokio::spawn(async move {
                let name =
                    login.await.map(|caller| caller.map_or("?".to_owned(), |caller| caller.name.clone()));
                engine.send((id, name.map_or_else(failed, |name| format!("welcome {name}")))).await
            });
        } else if let Some((method, json)) = rest.split_once(' ') {
            let (method, limit) = method.split_once('@').unwrap_or((method, ""));
            let mut call = ServiceCall::new(method, Codec::Json, json.to_owned()).metadata(metadata.clone());
            if let Ok(milliseconds) = limit.parse() {
                call = call.timeout(Duration::from_millis(milliseconds));
            }
            let is_oneway = verb == "note";
            let call = services.call(peer, if is_oneway { call.oneway() } else { call });
            tokio::spawn(async move {
                let text = call.await.map(|response| String::from_utf8(response.message.to_vec()).unwrap());
                let text = text.map_or_else(failed, |text| format!("ok {text}"));
                if is_oneway { Ok(()) } else { engine.send((id, text)).await }
            });
        }
    }
}

impl Adapter for Calls {
    type Command = (SubscriberId, String);
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, _: &mut Subscribers) {
        self.peers.push((connected.id, Arc::new(connected.connection.peer), Metadata::new()));
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        _: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        while let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8(input.take(end).to_vec()).unwrap();
            input.skip(1);
            self.line(id, &line);
        }
        Ok(())
    }

    fn command(&mut self, (id, line): (SubscriberId, String), subscribers: &mut Subscribers) {
        subscribers.send(id, |out| out.tail().extend_from_slice(format!("{line}\n").as_bytes()));
    }

    fn due(&mut self, _: SubscriberId, _: &mut Subscribers) {}

    fn lagged(&mut self, _: SubscriberId, _: BufferId, _: u64, _: &mut Subscribers) {}

    fn disconnected(&mut self, id: SubscriberId, _: &CloseReason, _: State, _: &mut Subscribers) {
        self.peers.retain(|(known, ..)| *known != id);
    }
}

struct Program(BufReader<TcpStream>);

impl Program {
    async fn connect(running: &Running) -> Program {
        let address = running.url().strip_prefix("tcp://").unwrap().to_owned();
        let mut caller = Program(BufReader::new(TcpStream::connect(address).await.unwrap()));
        caller.send("lines").await;
        caller
    }

    async fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.line().await
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        line.trim_end().to_owned()
    }
}

async fn start(server: Server) -> Running {
    server.plugin(Lines).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

#[tokio::test]
async fn peers_call_services() {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let server = Server::new().add(probe).limit(Limit::MetadataBytesMax, 256);
    let server = server.method_limit("test.Probe/Meta", Limit::MessageBytesMax, 16);
    let running = start(server.method_deadline_max("test.Probe/Hang", Duration::from_millis(100))).await;
    let mut program = Program::connect(&running).await;
    assert_eq!(program.ask("call test.Probe/Mirror [1,2]").await, "ok [1,2]");
    assert_eq!(program.ask("call test.Probe.Mirror [3]").await, "ok [3]");
    assert_eq!(program.ask("call test.Probe/Fail \"x\"").await, "error NOT_FOUND x");
    assert_eq!(program.ask("call test.Probe/Panic 0").await, "error INTERNAL handler panicked");
    let unknown = program.ask("call test.Probe/Nothing 0").await;
    assert!(unknown.starts_with("error UNIMPLEMENTED") && unknown.contains("has Echo, Fail"), "{unknown}");
    let streams = program.ask("call test.Probe/Count [1,1]").await;
    let text =
        "error UNIMPLEMENTED test.Probe/Count streams messages; this protocol calls unary methods only";
    assert_eq!(streams, text);
    let late = program.ask("call test.Probe/Hang@20 0").await;
    assert_eq!(late, "error DEADLINE_EXCEEDED the deadline of 20 ms has passed on the server");
    // The limit of the server is shorter than that of the caller.
    let late = program.ask("call test.Probe/Hang@60000 0").await;
    assert_eq!(late, "error DEADLINE_EXCEEDED the deadline of 100 ms has passed on the server");
    let late = program.ask("call test.Probe/Mirror@0 0").await;
    assert_eq!(late, "error DEADLINE_EXCEEDED the deadline had passed when the call arrived");
    let large = program.ask(&format!("call test.Probe/Meta \"{}\"", "x".repeat(20))).await;
    assert!(large.contains("over the limit of 16 bytes (message_bytes_max of the method)"), "{large}");
    program.send("note test.Probe/Note 7").await;
    soon(seen.until(|seen| seen.notes.load(std::sync::atomic::Ordering::SeqCst) == 7)).await;
    assert_eq!(program.ask(&format!("login {}", "t".repeat(300))).await, "welcome ?");
    let metadata = program.ask("call test.Probe/Mirror 0").await;
    assert!(metadata.starts_with("error RESOURCE_EXHAUSTED request metadata has"), "{metadata}");
    assert!(metadata.contains("the limit is 256 (metadata_bytes_max)"), "{metadata}");

    assert_eq!(counted(&running, "test.Probe/Mirror"), (2, 1));
    assert_eq!(counted(&running, "test.Probe/Hang"), (0, 2));
    assert_eq!(running.stats().memory.held, 0, "calls release their memory");
}

/// The calls of a method on the wire of the plugin: those that succeeded, and those that failed.
fn counted(running: &Running, method: &str) -> (u64, u64) {
    let methods = running.stats().methods;
    let wires = &methods.iter().find(|stats| stats.name == method).unwrap().wires;
    let ended = wires.iter().find(|stats| stats.wire == LINES.name).unwrap().ended;
    (ended[0], ended[1..].iter().sum())
}

#[tokio::test]
async fn calls_of_peers_pass_the_guards() {
    let tokens = Tokens::default().token("a", Caller::new("alice")).token("b", Caller::new("bob"));
    let server = Server::new().add(Probe::default()).auth(tokens);
    let server = server.rule(Rule::methods("test.Probe/Meta").callers(["bob"]));
    let running = start(server.rate(Rate::per_second(0.001).burst(2).methods("test.Probe/Echo"))).await;
    let mut program = Program::connect(&running).await;
    // Callers without credentials do not learn which methods exist.
    let refused = program.ask("call test.Probe/Mirror 0").await;
    assert!(refused.starts_with("error UNAUTHENTICATED"), "{refused}");
    assert_eq!(program.ask("call test.Probe/Nothing 0").await, refused);
    assert_eq!(program.ask("call test.Probe/Count 0").await, refused);
    assert_eq!(program.ask("login x").await, "error UNAUTHENTICATED the token is not valid");
    assert_eq!(program.ask("login a").await, "welcome alice");
    assert_eq!(program.ask("call test.Probe/Mirror 0").await, "ok 0");
    let denied = program.ask("call test.Probe/Meta 0").await;
    assert_eq!(denied, "error PERMISSION_DENIED this caller may not call this method");
    assert!(program.ask("call test.Probe/Nothing 0").await.starts_with("error UNIMPLEMENTED"));
    assert_eq!(program.ask("login b").await, "welcome bob");
    assert_eq!(program.ask("call test.Probe/Meta 0").await, "ok [\"authorization\"]");
    for _ in 0..2 {
        assert_eq!(program.ask("call test.Probe/Echo [1]").await, "ok [1]");
    }
    let limited = program.ask("call test.Probe/Echo [1]").await;
    assert!(limited.starts_with("error RESOURCE_EXHAUSTED"), "{limited}");
}

#[tokio::test]
async fn calls_of_peers_count_in_the_limit_and_the_drain() {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let running = start(Server::new().add(probe).limit(Limit::ServerCallsMax, 2)).await;
    let mut program = Program::connect(&running).await;
    for _ in 0..2 {
        program.send("call test.Probe/Hang 0").await;
    }
    soon(seen.until(|seen| seen.hanging() == 2)).await;
    assert_eq!(running.stats().calls_in_flight, 2);
    let refused = program.ask("call test.Probe/Mirror 0").await;
    assert_eq!(refused, "error RESOURCE_EXHAUSTED 2 calls are in flight on this server (server_calls_max)");
    // The drain ends them.
    let stopping = tokio::spawn(running.stop(StopOptions::new().drain(Duration::from_millis(50))));
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    drop(program);
    soon(stopping).await.unwrap();
}
