//! A protocol of lines, as an adapter of the hub.
//!
//! `CONNECT user key` or `TOKEN token`, then `JOIN room [epoch offset]`, `LEAVE room`, `ACCEPTS operation`, `PING`.

use bytes::Bytes;
use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard::{
    Peer, Result, Status,
    plugin::{Plugin, PluginContext, PluginServer},
};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Engines, Handle, Options, State, SubscriberId,
    Subscribers,
};
use switchboard_message::{Gap, Message, Position, Topic};
use switchboard_push::{
    Accepts, Connect, Credentials, Device, Disconnect, DisconnectReason, Hub, Identity, Start,
    control::Control,
    feeds::{Begun, Encoder, EngineCloser, FeedCommand, Feeds, Notice, Outcome},
    operation_of,
};
use switchboard_wire::{
    Input, Outbox,
    spec::{Verdict, WireSpec},
};

static LINES: WireSpec = WireSpec { title: "lines", sniff: Some(sniff), ..WireSpec::named("lines") };

fn sniff(first: &[u8]) -> Verdict {
    match first {
        [b'C' | b'T', ..] => Verdict::Yes,
        [] => Verdict::More,
        _ => Verdict::No,
    }
}

pub(crate) struct Lines(Hub);

impl Lines {
    pub(crate) fn new(hub: &Hub) -> Lines {
        Lines(hub.clone())
    }
}

impl Plugin for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&LINES]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let hub = self.0.clone();
        let make = move |engine: Handle<LinesAdapter>| LinesAdapter {
            feeds: Feeds::new(&hub, engine.clone()),
            hub: hub.clone(),
            engine,
            peers: HashMap::new(),
        };
        Ok(Arc::new(Engines::new(Options::default(), Some(context.memory), make)))
    }
}

pub(crate) struct LinesAdapter {
    hub: Hub,
    engine: Handle<LinesAdapter>,
    feeds: Feeds<Accepts>,
    peers: HashMap<SubscriberId, LinesPeer>,
}

struct LinesPeer {
    peer: Arc<Peer>,
    device: Option<Device>,
}

pub(crate) enum Command {
    Feed(FeedCommand),
    Verified(SubscriberId, Result<Identity>),
}

impl From<FeedCommand> for Command {
    fn from(command: FeedCommand) -> Command {
        Command::Feed(command)
    }
}

struct Frames;

fn text(out: &mut Outbox, text: &str) {
    out.put(&Bytes::copy_from_slice(text.as_bytes()));
}

impl Encoder for Frames {
    type Key = Accepts;

    fn admits(&self, key: &Accepts, entry: &Message<Bytes>) -> bool {
        key.admits(operation_of(entry.entry()))
    }

    fn encode(&mut self, _: &Accepts, entries: &[&Message<Bytes>], out: &mut Outbox) {
        for entry in entries {
            text(out, &format!("{} {}\n", entry.topic(), String::from_utf8_lossy(entry)));
        }
    }

    fn gap(&mut self, _: &Accepts, gap: &Gap, out: &mut Outbox) {
        text(out, &format!("GAP {} {:?}\n", gap.reason, gap.missing));
    }

    fn stays_after_lag(&mut self, _: SubscriberId, topic: &Topic) -> bool {
        topic.name().starts_with("room/kept/") || topic.name() == "user/kept"
    }

    fn begun(&mut self, _: SubscriberId, _: &Accepts, begun: &Begun<'_>, out: &mut Outbox) {
        if !begun.topic.name().starts_with("room/") {
            return;
        }
        let outcome = match begun.outcome {
            Outcome::Complete => "complete".to_owned(),
            Outcome::Gap(gap) => {
                let missing = gap.missing.map_or("?".to_owned(), |missing| missing.to_string());
                format!("gap {} {missing}", gap.reason)
            }
            _ => "live".to_owned(),
        };
        text(out, &format!("JOINED {} {outcome}\n", begun.topic));
    }
}

impl LinesAdapter {
    fn line(&mut self, id: SubscriberId, line: &str, subscribers: &mut Subscribers) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        let credentials = Credentials::new("lines", peer.peer.clone());
        let Some(device) = &mut peer.device else {
            let credentials = match words[..] {
                ["TOKEN", token] => credentials.token(token),
                ["CONNECT", user, key] => credentials.claimed(Identity::new(user).key(key)),
                _ => return Err(Status::unauthenticated("CONNECT first")),
            };
            self.verify(id, &credentials, subscribers);
            return Ok(());
        };
        match words[..] {
            ["JOIN", room, ref position @ ..] => {
                let joined = device.join(room)?;
                let start = match position {
                    [epoch, offset] => Start::After(Position {
                        epoch: epoch.parse().unwrap(),
                        offset: offset.parse().unwrap(),
                    }),
                    _ => Start::Next,
                };
                let key = device.accepts().clone();
                self.feeds.subscribe(id, &joined.topic, (key, start), &mut Frames, subscribers)?;
            }
            ["LEAVE", room] => {
                if let Some(topic) = device.leave(room)? {
                    self.feeds.unsubscribe(id, &topic, subscribers);
                }
            }
            ["ACCEPTS", operation] => {
                device.set_accepts(Accepts::only([operation.parse().unwrap()]));
                self.feeds.rekey(id, device.accepts(), &mut Frames, subscribers);
            }
            _ => _ = subscribers.send(id, |out| text(out, "PONG\n")),
        }
        Ok(())
    }

    fn verify(&mut self, id: SubscriberId, credentials: &Credentials, subscribers: &mut Subscribers) {
        let mut verify = self.hub.verify(credentials);
        match Pin::new(&mut verify).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(verified) => self.verified(id, verified, subscribers),
            Poll::Pending => {
                subscribers.pause(id);
                let engine = self.engine.clone();
                tokio::spawn(async move {
                    let verified = verify.await;
                    let _ = engine.send(Command::Verified(id, verified)).await;
                });
            }
        }
    }

    fn verified(&mut self, id: SubscriberId, verified: Result<Identity>, subscribers: &mut Subscribers) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let closer = EngineCloser::new(&self.engine, id);
        let connect = Connect::new("lines").address(peer.peer.address.clone());
        match verified.and_then(|identity| self.hub.connect(identity, connect, closer)) {
            Ok(device) => {
                for topic in device.own_topics() {
                    let subscription = (device.accepts().clone(), Start::Next);
                    self.feeds.subscribe(id, topic, subscription, &mut Frames, subscribers).unwrap();
                }
                device.announce().unwrap();
                subscribers.send(id, |out| text(out, "OK\n"));
                peer.device = Some(device);
                subscribers.resume(id);
            }
            Err(status) => {
                subscribers.send(id, |out| text(out, &format!("REFUSED {}\n", status.message())));
                subscribers.close(id, CloseReason::Closed);
            }
        }
    }

    fn notices(&mut self, subscribers: &mut Subscribers) {
        while let Some(notice) = self.feeds.next_notice() {
            match notice {
                Notice::Close(id, order) => self.close(id, &order, subscribers),
                Notice::Order(id, order) => {
                    let device = self.peers.get_mut(&id).and_then(|peer| peer.device.as_mut());
                    let Some(device) = device else { continue };
                    let Some(order) = device.order(order) else { continue };
                    if let Some(order) = order.disconnect() {
                        self.close(id, &order, subscribers);
                    } else if let Control::Join { room } = order {
                        let joined = device.join_by_server(&room).unwrap();
                        let subscription = (device.accepts().clone(), Start::Next);
                        self.feeds
                            .subscribe(id, &joined.topic, subscription, &mut Frames, subscribers)
                            .unwrap();
                    }
                }
                _ => {}
            }
        }
    }

    fn close(&mut self, id: SubscriberId, order: &Disconnect, subscribers: &mut Subscribers) {
        subscribers.send(id, |out| text(out, &format!("BYE {}\n", order.reason)));
        if let Some(device) = self.peers.get_mut(&id).and_then(|peer| peer.device.take()) {
            device.disconnect(order.reason);
        }
        subscribers.close(id, CloseReason::Closed);
    }
}

impl Adapter for LinesAdapter {
    type Command = Command;
    type Connection = Admitted;

    fn connected(&mut self, connected: Connected<Admitted>, _: &mut Subscribers) {
        let peer = LinesPeer { peer: Arc::new(connected.connection.peer), device: None };
        self.peers.insert(connected.id, peer);
    }

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        while let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8(input.rest()[..end].to_vec()).unwrap();
            input.skip(end + 1);
            if let Err(status) = self.line(id, &line, subscribers) {
                subscribers.send(id, |out| text(out, &format!("ERROR {status}\n")));
            }
        }
        self.feeds.turn(&mut Frames, subscribers);
        self.notices(subscribers);
        Ok(())
    }

    fn command(&mut self, command: Command, subscribers: &mut Subscribers) {
        match command {
            Command::Feed(command) => self.feeds.command(command, &mut Frames, subscribers),
            Command::Verified(id, verified) => {
                self.verified(id, verified, subscribers);
                self.feeds.turn(&mut Frames, subscribers);
            }
        }
        self.notices(subscribers);
    }

    fn due(&mut self, _: SubscriberId, _: &mut Subscribers) {}

    fn lagged(&mut self, id: SubscriberId, buffer: BufferId, _: u64, subscribers: &mut Subscribers) {
        if !self.feeds.lagged(id, buffer, &mut Frames, subscribers) {
            subscribers.abort(id, CloseReason::Lagged);
        }
        self.notices(subscribers);
    }

    fn drained(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        self.feeds.drained(id, &mut Frames, subscribers);
        self.notices(subscribers);
    }

    fn disconnected(
        &mut self,
        id: SubscriberId,
        reason: &CloseReason,
        _: State,
        subscribers: &mut Subscribers,
    ) {
        self.feeds.disconnected(id, subscribers);
        let reason = match reason {
            CloseReason::Lagged => DisconnectReason::Lagged,
            _ => DisconnectReason::Peer,
        };
        if let Some(device) = self.peers.remove(&id).and_then(|peer| peer.device) {
            device.disconnect(reason);
        }
    }
}
