//! The goim machines against arbitrary bytes.

use crate::{
    Fatal, Input, Outbox,
    fuzzing::{Choices, feed::feed},
    goim::{
        Client, Event, HEADER_BYTES, Limits, ProtocolError, PushLimits, Server, Variant, Variants,
        imcloud::{HEARTBEAT_REPLY, MISSING_PARAMETER},
    },
};

/// Feeds a server or a client with any bytes. Checks that it does not panic, that the events do not depend on the
/// split, that it respects the limits, and that it writes and examines no more than its input justifies.
///
/// # Panics
/// If the property does not hold.
pub fn goim_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    if choices.one_in(3) { client_input(&mut choices) } else { server_input(&mut choices) }
}

fn server_input(choices: &mut Choices<'_>) {
    let limits = Limits {
        accepts_max: u32::from(choices.byte() % 8),
        body_bytes_max: u32::from(choices.short() % 1000),
        key_bytes_max: u32::from(choices.byte()),
        platform_bytes_max: u32::from(choices.byte()),
        room_bytes_max: u32::from(choices.byte() % 32),
    };
    let variants = [Variants::ByAuth, Variants::Only(Variant::Goim), Variants::Only(Variant::ImCloud)]
        [usize::from(choices.byte() % 3)];
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = packets(choices);
    let whole = server_events(variants, &limits, &bytes, &[]);
    assert_eq!(server_events(variants, &limits, &bytes, &steps), whole, "{bytes:02x?}");
}

fn server_events(variants: Variants, limits: &Limits, bytes: &[u8], steps: &[u8]) -> (Vec<String>, bool) {
    let mut server = Server::new(variants);
    // An echo of the body, the reply to a heartbeat, or a refused command, for each packet.
    let reply = HEADER_BYTES + HEARTBEAT_REPLY.len() + MISSING_PARAMETER.len();
    let written_max = |read: usize| read + read / HEADER_BYTES * reply;
    let kept_max = HEADER_BYTES + limits.body_bytes_max as usize;
    feed(bytes, steps, kept_max, written_max, |input, out| {
        let event = server.recv(input, limits, out)?;
        if let Some(event) = &event {
            check(event, limits, server.is_authenticated());
        }
        match event {
            Some(Event::Auth(_)) => server.accept(out),
            Some(Event::Heartbeat) => server.heartbeat(7, out),
            _ => {}
        }
        assert!(!server.is_waiting());
        Ok(event)
    })
}

/// Checks an event against the limits.
fn check(event: &Event, limits: &Limits, is_authenticated: bool) {
    let is_room = |room: &Option<String>| {
        room.as_ref().is_none_or(|room| !room.is_empty() && room.len() <= limits.room_bytes_max as usize)
    };
    assert_eq!(is_authenticated, !matches!(event, Event::Auth(_) | Event::Skipped { .. }), "{event:?}");
    match event {
        Event::Auth(auth) => {
            assert!(auth.accepts.len() <= limits.accepts_max as usize && is_room(&auth.room));
            assert!(auth.key.as_ref().is_none_or(|key| key.len() <= limits.key_bytes_max as usize));
            assert!(auth.platform.len() <= limits.platform_bytes_max as usize);
        }
        Event::ChangeRoom { room } => assert!(is_room(room), "{room:?}"),
        Event::Subscribe { operations } | Event::Unsubscribe { operations } => {
            assert!(operations.len() <= limits.accepts_max as usize);
        }
        Event::Message { body, .. } => assert!(body.len() <= limits.body_bytes_max as usize),
        Event::Push(push) => assert!(push.message.len() <= limits.body_bytes_max as usize),
        Event::Heartbeat | Event::Refused { .. } | Event::Skipped { .. } => {}
    }
}

fn client_input(choices: &mut Choices<'_>) {
    let limits = PushLimits {
        body_bytes_max: u32::from(choices.short() % 1000),
        requests_max: u32::from(choices.byte() % 8),
    };
    let variant = if choices.one_in(2) { Variant::Goim } else { Variant::ImCloud };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = packets(choices);
    let run = |steps: &[u8]| {
        let mut client = Client::new(variant, limits);
        while client.heartbeat(&mut Outbox::new()).is_ok() {}
        let kept_max = HEADER_BYTES + limits.body_bytes_max as usize;
        feed(
            &bytes,
            steps,
            kept_max,
            |_| 0,
            |input: &mut Input, _: &mut Outbox| {
                client.recv(input).map_err(|error: ProtocolError| Fatal::from(error))
            },
        )
    };
    assert_eq!(run(&[]), run(&steps), "{bytes:02x?}");
}

/// Mostly well-formed packets, sometimes only noise.
fn packets(choices: &mut Choices<'_>) -> Vec<u8> {
    const BODIES: [&[u8]; 8] = [
        br#"{"mid":1,"room_id":"live://1","platform":"web","accepts":[1000,1001]}"#,
        br#"{"mid":1,"room_id":"a://b","platform":"web","accepts":[],"protocol":"im-cloud"}"#,
        br#"{"cmd":"pushMids","data":{"msg":"x","mids":[1]}}"#,
        br#"{"cmd":"pushRoom","data":{"msg":"x","type":"a"}}"#,
        b"1000,1001",
        b"live://1000",
        b"\0\0\0\x12\0\x10\0\x01\0\0\x03\xe8\0\0\0\0hi",
        b"",
    ];
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    if !choices.one_in(8) {
        bytes.extend(packet(7, 1, BODIES[usize::from(choices.byte() % 2)]));
    }
    while !choices.is_over() {
        let body = if choices.one_in(4) {
            choices.bytes(60)
        } else {
            BODIES[usize::from(choices.byte()) % BODIES.len()]
        };
        let operation = i32::from(choices.byte() % 20);
        let sequence = i32::from(choices.byte() % 8);
        let mut packet = packet(operation, sequence, body);
        if choices.one_in(32) {
            let at = usize::from(choices.byte()) % packet.len();
            packet[at] ^= choices.byte();
        }
        bytes.extend(packet);
    }
    bytes
}

fn packet(operation: i32, sequence: i32, body: &[u8]) -> Vec<u8> {
    let mut packet = (HEADER_BYTES as u32 + body.len() as u32).to_be_bytes().to_vec();
    packet.extend(b"\0\x10\0\x01");
    packet.extend(operation.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(body);
    packet
}
