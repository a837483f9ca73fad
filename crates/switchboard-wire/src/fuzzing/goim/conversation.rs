//! The client machine of goim against the server machine.

use crate::{
    Input, Outbox,
    fuzzing::{Choices, feed::pieces},
    goim::{
        Auth, Client, ClientEvent, Event, Limits, Push, PushForm, PushLimits, Server, Variant, Variants,
        imcloud::{self, Receivers},
        operation,
    },
};
use bytes::{Bytes, BytesMut};

/// Checks that each side receives what the other sends, for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn goim_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let variant = if choices.one_in(2) { Variant::Goim } else { Variant::ImCloud };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let mut pair = Pair::new(variant, steps);
    pair.auth(&mut choices);
    while !choices.is_over() {
        pair.act(&mut choices);
        assert_eq!(pair.client.outstanding(), 0);
    }
}

/// Both sides.
struct Pair {
    variant: Variant,
    client: Client,
    server: Server,
    client_input: Input,
    server_input: Input,
    to_client: Outbox,
    to_server: Outbox,
    steps: [u8; 3],
}

impl Pair {
    fn new(variant: Variant, steps: [u8; 3]) -> Pair {
        Pair {
            variant,
            client: Client::new(variant, PushLimits::default()),
            server: Server::new(Variants::ByAuth),
            client_input: Input::default(),
            server_input: Input::default(),
            to_client: Outbox::new(),
            to_server: Outbox::new(),
            steps,
        }
    }

    fn auth(&mut self, choices: &mut Choices<'_>) {
        let mut auth = Auth {
            accepts: (0..choices.byte() % 9).map(|_| choices.long().cast_signed()).collect(),
            key: choices.one_in(2).then(|| text(choices)),
            mid: i64::from(choices.long()),
            platform: text(choices),
            protocol: Some(self.variant.name().to_owned()),
            room: Some(text(choices)),
            token: choices.one_in(2).then(|| text(choices)),
            body: Bytes::new(),
        };
        self.client.auth(&auth, &mut self.to_server).expect("the queue has room");
        auth.body = Bytes::from(auth.to_json());
        let body = if self.variant == Variant::Goim { &[] } else { imcloud::AUTH_REPLY };
        self.check(Event::Auth(Box::new(auth)), &[(operation::AUTH_REPLY, body)]);
    }

    /// Sends one request, or pushes, and checks the events of both sides.
    fn act(&mut self, choices: &mut Choices<'_>) {
        let is_goim = self.variant == Variant::Goim;
        match choices.byte() % 6 {
            0 => {
                self.client.heartbeat(&mut self.to_server).expect("the queue has room");
                let body = if is_goim { b"\0\0\x01\x02" } else { imcloud::HEARTBEAT_REPLY };
                self.check(Event::Heartbeat, &[(operation::HEARTBEAT_REPLY, body)]);
            }
            1 => {
                let room = choices.one_in(2).then(|| text(choices));
                self.client.change_room(room.as_deref(), &mut self.to_server).expect("the queue has room");
                let body = room.clone().unwrap_or_default();
                self.check(Event::ChangeRoom { room }, &[(operation::CHANGE_ROOM_REPLY, body.as_bytes())]);
            }
            2 => {
                let operations: Vec<i32> =
                    (0..choices.byte() % 9).map(|_| choices.long().cast_signed()).collect();
                self.client.subscribe(&operations, &mut self.to_server).expect("the queue has room");
                let list = operations.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
                self.check(Event::Subscribe { operations }, &[(operation::SUBSCRIBE_REPLY, list.as_bytes())]);
            }
            3 if is_goim => {
                let body = Bytes::copy_from_slice(choices.bytes(60));
                self.client.request(1000, &body, &mut self.to_server).expect("the queue has room");
                self.check(Event::Message { operation: 1000, body }, &[(1000, b"")]);
            }
            3 => {
                let to = match choices.byte() % 4 {
                    0 => Receivers::All,
                    1 => Receivers::Keys(vec![text(choices), text(choices)]),
                    2 => Receivers::Mids(vec![i64::from(choices.long())]),
                    _ => Receivers::Room(format!("{}://{}", text(choices), text(choices))),
                };
                let push = imcloud::Push { to, message: Bytes::from(text(choices)) };
                self.client.push(&push, &mut self.to_server).expect("the queue has room");
                self.check(Event::Push(push), &[]);
            }
            _ => self.pushes(choices),
        }
    }

    fn pushes(&mut self, choices: &mut Choices<'_>) {
        let form = match self.variant {
            Variant::Goim => PushForm::new(Variant::Goim, choices.one_in(2)),
            Variant::ImCloud => PushForm::new(Variant::ImCloud, choices.one_in(2)),
        };
        let sent: Vec<(i32, Bytes)> =
            (0..choices.byte() % 5).map(|_| (1000 + i32::from(choices.byte()), choices.message())).collect();
        let pushes: Vec<Push<'_>> =
            sent.iter().map(|(operation, payload)| Push { operation: *operation, payload }).collect();
        let mut bytes = BytesMut::new();
        form.write(&pushes, &mut bytes).expect("messages are short");
        assert_eq!(Ok(bytes.len()), form.len(&pushes));
        self.to_client.put(&bytes.freeze());
        let operation = |sent| if form == PushForm::Messages { operation::RAW } else { sent };
        let expected: Vec<ClientEvent> = sent
            .into_iter()
            .map(|(sent, payload)| ClientEvent::Push { operation: operation(sent), payload })
            .collect();
        assert_eq!(self.exchange(), (Vec::new(), expected));
    }

    /// Exchanges a request and its replies.
    fn check(&mut self, event: Event, replies: &[(i32, &[u8])]) {
        let (events, received) = self.exchange();
        assert_eq!(events, [event]);
        let received: Vec<(i32, &[u8])> = received
            .iter()
            .map(|event| match event {
                ClientEvent::Reply { operation, body, .. } => (*operation, &body[..]),
                ClientEvent::Push { .. } => panic!("{event:?} is no reply"),
            })
            .collect();
        assert_eq!(received, replies);
    }

    /// Delivers everything in both directions.
    fn exchange(&mut self) -> (Vec<Event>, Vec<ClientEvent>) {
        let (mut events, mut received) = (Vec::new(), Vec::new());
        for piece in pieces(&self.to_server.take_all(), &self.steps) {
            self.server_input.extend(piece);
            let (input, out) = (&mut self.server_input, &mut self.to_client);
            while let Some(event) = self.server.recv(input, &Limits::default(), out).expect("no error") {
                self.server.accept(out);
                self.server.heartbeat(0x102, out);
                events.push(event);
            }
        }
        for piece in pieces(&self.to_client.take_all(), &self.steps) {
            self.client_input.extend(piece);
            while let Some(event) = self.client.recv(&mut self.client_input).expect("no error") {
                received.push(event);
            }
        }
        assert!(self.server_input.is_empty() && self.client_input.is_empty());
        (events, received)
    }
}

/// Draws a text of one or more letters.
fn text(choices: &mut Choices<'_>) -> String {
    let letters = choices.bytes(20).iter().map(|byte| char::from(b'a' + byte % 26));
    std::iter::once('x').chain(letters).collect()
}
