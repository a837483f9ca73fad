//! Connections of CURVE whose bytes are changed, repeated, left out and reordered on their way.

use crate::{
    Input, Outbox,
    fuzzing::{Choices, feed::pieces},
    zmtp::{
        Connection, CurveClient, CurveServer, Event, Mechanism, Randomness, SecretKey, Settings, SocketType,
    },
};
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Returns the mechanisms of a client and a server. Equal seeds have equal bytes on the wire.
pub(super) fn mechanisms(seed: u8) -> [Mechanism; 2] {
    let [client, server] = [1, 2].map(|number| SecretKey::new([number; 32]));
    let client = CurveClient::new(client, server.public_key(), random(seed));
    [Mechanism::CurveClient(client), Mechanism::CurveServer(CurveServer::new(server, random(!seed)))]
}

fn random(seed: u8) -> Randomness {
    let state = Mutex::new(u64::from(seed));
    Randomness::new(move |bytes| {
        let mut state = state.lock().map_err(|error| error.to_string())?;
        for byte in bytes {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*state >> 56) as u8;
        }
        Ok(())
    })
}

/// Records a connection, then sends one of its sides the bytes of the other one again, changed. Checks that this side
/// sees no event that the recorded connection did not have, in its order, and that the split of the bytes has no
/// effect.
///
/// # Panics
/// If the property does not hold.
pub fn zmtp_curve(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, receiver) = (choices.byte(), usize::from(choices.byte() % 2));
    let messages: Vec<Bytes> = (0..choices.byte() % 6).map(|_| choices.message()).collect();
    let recorded = record(seed, receiver, &messages);
    let mut units = recorded.units;
    assert_eq!(replay(seed, receiver, &units.concat(), &[7]), recorded.events, "unchanged bytes");
    for _ in 0..=choices.byte() % 3 {
        change(&mut units, &mut choices);
    }
    let bytes = units.concat();
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let events = replay(seed, receiver, &bytes, &steps);
    let mut genuine = recorded.events.iter();
    for event in &events {
        assert!(genuine.any(|recorded| recorded == event), "{event:?} was not sent, or not in this order");
    }
    assert_eq!(replay(seed, receiver, &bytes, &[]), events);
}

/// The greeting, the commands and the frames that one side received, and its events.
struct Recorded {
    units: Vec<Vec<u8>>,
    events: Vec<Event>,
}

fn sides(seed: u8) -> [Settings; 2] {
    mechanisms(seed).map(|mechanism| Settings::new(SocketType::Pair).with_mechanism(mechanism))
}

fn record(seed: u8, receiver: usize, messages: &[Bytes]) -> Recorded {
    let mut outboxes = [Outbox::new(), Outbox::new()];
    let mut at = 0;
    let mut connections = sides(seed).map(|settings| {
        at += 1;
        Connection::new(Arc::new(settings), &mut outboxes[at - 1])
    });
    let mut inputs = [Input::default(), Input::default()];
    let mut recorded = Recorded { units: Vec::new(), events: Vec::new() };
    for round in 0..10 {
        if round == 9 {
            let sender = 1 - receiver;
            assert!(connections.iter().all(Connection::is_open));
            for message in messages {
                assert!(connections[sender].send([message], &mut outboxes[sender]));
                deliver(receiver, &mut connections, &mut outboxes, &mut inputs, &mut recorded);
            }
            break;
        }
        for to in [0, 1] {
            let events = if to == receiver {
                &mut recorded
            } else {
                &mut Recorded { units: Vec::new(), events: Vec::new() }
            };
            deliver(to, &mut connections, &mut outboxes, &mut inputs, events);
        }
    }
    recorded
}

/// Delivers to one side all that the other has written.
fn deliver(
    to: usize,
    connections: &mut [Connection; 2],
    outboxes: &mut [Outbox; 2],
    inputs: &mut [Input; 2],
    recorded: &mut Recorded,
) {
    let bytes = outboxes[1 - to].take_all();
    if bytes.is_empty() {
        return;
    }
    inputs[to].extend(&bytes);
    // A greeting may have the first command behind it.
    let first =
        if recorded.units.is_empty() { bytes.len().min(crate::zmtp::GREETING_BYTES) } else { bytes.len() };
    let parts = [&bytes[..first], &bytes[first..]];
    recorded.units.extend(parts.into_iter().filter(|part| !part.is_empty()).map(<[u8]>::to_vec));
    receive(&mut connections[to], &mut inputs[to], &mut outboxes[to], &mut recorded.events)
        .expect("no error");
}

fn receive(
    connection: &mut Connection,
    input: &mut Input,
    out: &mut Outbox,
    events: &mut Vec<Event>,
) -> Result<(), String> {
    while let Some(event) = connection.recv(input, out).map_err(|error| error.to_string())? {
        if matches!(event, Event::ClientKey(_)) {
            connection.accept(out);
        }
        events.push(event);
    }
    Ok(())
}

/// Returns the events of a new connection with these bytes. Its random bytes are those of the recorded one.
fn replay(seed: u8, receiver: usize, bytes: &[u8], steps: &[u8]) -> Vec<Event> {
    let [client, server] = sides(seed);
    let settings = if receiver == 0 { client } else { server };
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    let mut connection = Connection::new(Arc::new(settings), &mut out);
    for piece in pieces(bytes, steps) {
        input.extend(piece);
        if receive(&mut connection, &mut input, &mut out, &mut events).is_err() {
            break;
        }
    }
    events
}

/// Changes a byte of a unit, repeats it, leaves it out, or exchanges it with another one.
fn change(units: &mut Vec<Vec<u8>>, choices: &mut Choices<'_>) {
    let at = usize::from(choices.byte()) % units.len();
    match choices.byte() % 6 {
        0 => units.insert(at, units[at].clone()),
        1 if units.len() > 1 => drop(units.remove(at)),
        2 => {
            let other = usize::from(choices.byte()) % units.len();
            units.swap(at, other);
        }
        3 => {
            let keep = usize::from(choices.short()) % (units[at].len() + 1);
            units[at].truncate(keep);
        }
        _ if !units[at].is_empty() => {
            let byte = usize::from(choices.short()) % units[at].len();
            units[at][byte] ^= 1 << (choices.byte() % 8);
        }
        _ => {}
    }
}
