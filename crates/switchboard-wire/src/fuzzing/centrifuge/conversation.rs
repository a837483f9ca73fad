//! The client machine of Centrifuge against the server machine.

use crate::{
    Input, Outbox,
    centrifuge::{
        Channel, Client, Command, Connect, Data, Format, History, Info, Limits, Position, PresenceResult,
        Publication, Publish, Push, Reply, Rpc, SendRequest, Server, Subscribe, Subscribed, code,
    },
    fuzzing::{Choices, feed::pieces},
};
use std::collections::BTreeMap;

/// Checks that each side receives what the other sends, in both formats and for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn centrifuge_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let format = if choices.one_in(2) { Format::Json } else { Format::Protobuf };
    let mut pair = Pair {
        client: Client::new(format, Limits::default()),
        server: Server::new(format),
        steps: [choices.byte(), choices.byte(), choices.byte()],
    };
    let token = text(&mut choices);
    let subs = BTreeMap::from([(text(&mut choices), subscribe(&mut choices))]);
    let connect = Connect { token, subs, data: value(&mut choices), ..Connect::default() };
    let connect = Command { connect: Some(Box::new(connect)), ..Command::default() };
    pair.exchange(connect, &reply(&mut choices));
    while !choices.is_over() {
        let (command, reply) = (command(&mut choices), reply(&mut choices));
        pair.exchange(command, &reply);
        assert_eq!((pair.client.in_flight(), pair.server.in_flight()), (0, 0));
    }
}

/// Both sides.
struct Pair {
    client: Client,
    server: Server,
    steps: [u8; 3],
}

impl Pair {
    /// Sends a command, its reply, a push and a ping with its pong.
    fn exchange(&mut self, mut command: Command, reply: &Reply) {
        let (mut to_server, mut to_client) = (Outbox::new(), Outbox::new());
        command.id = self.client.send(command.clone(), &mut to_server).expect("the command is sent");
        let bytes = to_server.take_all();
        assert_eq!(self.commands(&bytes), [command.clone()]);
        let mut expected = Vec::new();
        if command.id != 0 {
            let reply = Reply { id: command.id, ..reply.clone() };
            assert!(self.server.reply(&reply, &mut to_client));
            expected.push(reply);
        }
        let publication = Publication { offset: 7, ..Publication::default() };
        let push = Push { publication: Some(Box::new(publication)), ..Push::default() };
        for pushed in [Reply::push(push), Reply::default()] {
            assert!(self.server.reply(&pushed, &mut to_client));
            expected.push(pushed);
        }
        let (mut input, mut received) = (Input::default(), Vec::new());
        for piece in pieces(&to_client.take_all(), &self.steps) {
            input.extend(piece);
            while let Some(reply) = self.client.recv(&mut input, &mut to_server).expect("no error") {
                received.push(reply);
            }
        }
        assert_eq!(received, expected);
        let pong = to_server.take_all();
        assert_eq!(self.commands(&pong), [Command::default()]);
    }

    fn commands(&mut self, bytes: &[u8]) -> Vec<Command> {
        let (mut input, mut commands) = (Input::default(), Vec::new());
        for piece in pieces(bytes, &self.steps) {
            input.extend(piece);
            while let Some(command) = self.server.recv(&mut input, &Limits::default()).expect("no error") {
                commands.push(command);
            }
        }
        assert!(input.is_empty());
        commands
    }
}

fn command(choices: &mut Choices<'_>) -> Command {
    let mut command = Command::default();
    let channel = text(choices);
    match choices.byte() % 7 {
        0 => command.subscribe = Some(Box::new(Subscribe { channel, ..subscribe(choices) })),
        1 => command.publish = Some(Box::new(Publish { channel, data: value(choices) })),
        2 => command.presence = Some(Box::new(Channel { channel })),
        3 => {
            let since = choices
                .one_in(2)
                .then(|| Box::new(Position { offset: u64::from(choices.long()), epoch: text(choices) }));
            let limit = choices.long().cast_signed();
            let reverse = choices.one_in(2);
            command.history = Some(Box::new(History { channel, limit, since, reverse }));
        }
        4 => command.rpc = Some(Box::new(Rpc { method: channel, data: value(choices) })),
        5 => command.send = Some(Box::new(SendRequest { data: value(choices) })),
        _ => command.ping = Some(Box::default()),
    }
    command
}

fn reply(choices: &mut Choices<'_>) -> Reply {
    let mut reply = Reply::default();
    match choices.byte() % 4 {
        0 => return Reply::error(0, code::INTERNAL + u32::from(choices.byte() % 13), text(choices)),
        1 => {
            let tags = BTreeMap::from([(text(choices), text(choices))]);
            let publication = Publication { data: value(choices), tags, ..Publication::default() };
            reply.subscribe = Some(Box::new(Subscribed {
                recoverable: choices.one_in(2),
                epoch: text(choices),
                publications: vec![publication; usize::from(choices.byte() % 4)],
                offset: u64::from(choices.long()),
                ..Subscribed::default()
            }));
        }
        2 => {
            let info = Info { user: text(choices), conn_info: value(choices), ..Info::default() };
            let presence = BTreeMap::from([(text(choices), info)]);
            reply.presence = Some(Box::new(PresenceResult { presence }));
        }
        _ => reply.ping = Some(Box::default()),
    }
    reply
}

fn subscribe(choices: &mut Choices<'_>) -> Subscribe {
    Subscribe {
        recover: choices.one_in(2),
        epoch: text(choices),
        offset: u64::from(choices.long()),
        join_leave: choices.one_in(2),
        ..Subscribe::default()
    }
}

/// Draws a value that both formats can have.
fn value(choices: &mut Choices<'_>) -> Data {
    match choices.byte() % 4 {
        0 => Data::from("null"),
        1 => Data::from(r#"{"a": [1, 2.50, 1e400], "b":"\n\u0000"}"#),
        2 => Data::default(),
        _ => Data(serde_json::to_vec(&text(choices)).unwrap_or_default().into()),
    }
}

/// Draws a text.
fn text(choices: &mut Choices<'_>) -> String {
    choices.bytes(20).iter().map(|byte| char::from(*byte)).collect()
}
