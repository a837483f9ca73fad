//! The machines of Centrifuge against arbitrary bytes.

use crate::{
    Fatal,
    centrifuge::{Client, Command, Format, Limits, Reply, Server},
    fuzzing::{Choices, feed::feed},
};

/// Feeds a server or a client with any bytes. Checks that it does not panic, that the events do not depend on the
/// split, that it respects the limits, and that it writes no more than its input justifies.
///
/// # Panics
/// If the property does not hold.
pub fn centrifuge_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let format = if choices.one_in(2) { Format::Json } else { Format::Protobuf };
    let limits = Limits {
        channel_bytes_max: u32::from(choices.byte() % 32),
        command_bytes_max: u32::from(choices.short() % 600),
        commands_max: u32::from(choices.byte() % 8),
    };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let is_server = !choices.one_in(3);
    let bytes = messages(&mut choices, format);
    let run = |steps: &[u8]| match is_server {
        true => server_events(format, &limits, &bytes, steps),
        false => client_events(format, limits, &bytes, steps),
    };
    // A line that is too long is refused when its first bytes have arrived: the text has their number.
    assert_eq!(run(&[]), run(&steps), "{}", bytes.escape_ascii());
}

/// Returns the bytes that a machine may keep: a message with its length or line break, and the piece that ends it.
fn kept_max(limits: &Limits) -> usize {
    limits.command_bytes_max as usize + 5
}

fn server_events(format: Format, limits: &Limits, bytes: &[u8], steps: &[u8]) -> (Vec<String>, bool) {
    let mut server = Server::new(format);
    feed(
        bytes,
        steps,
        kept_max(limits),
        |read| 40 * read,
        |input, out| {
            let command = server.recv(input, limits)?;
            assert!(server.in_flight() <= limits.commands_max as usize);
            if let Some(command) = &command {
                check(command, limits);
                if command.id % 3 != 0 && command.send.is_none() {
                    assert!(server.reply(&Reply { id: command.id, ..Reply::default() }, out));
                }
            }
            Ok(command)
        },
    )
}

/// Checks a command against the limits.
fn check(command: &Command, limits: &Limits) {
    assert!(command.channel().is_none_or(|channel| channel.len() <= limits.channel_bytes_max as usize));
    assert!(command.id != 0 || command.send.is_some() || command.is_pong(), "{command:?}");
}

fn client_events(format: Format, limits: Limits, bytes: &[u8], steps: &[u8]) -> (Vec<String>, bool) {
    let mut client = Client::new(format, limits);
    let mut own = crate::Outbox::new();
    let command = || Command { ping: Some(Box::default()), ..Command::default() };
    while client.send(command(), &mut own).is_ok() {}
    assert_eq!(client.in_flight(), limits.commands_max as usize);
    let pong = |read: usize| read * 3;
    feed(bytes, steps, kept_max(&limits), pong, |input, out| client.recv(input, out).map_err(Fatal::from))
}

/// Mostly well-formed messages, sometimes only noise.
fn messages(choices: &mut Choices<'_>, format: Format) -> Vec<u8> {
    const LINES: [&str; 10] = [
        r#"{"id":1,"connect":{"token":"t","name":"js","subs":{"a":{"recover":true}}}}"#,
        r#"{"id":2,"subscribe":{"channel":"live:7","recover":true,"epoch":"x1","offset":41}}"#,
        r#"{"id":3,"publish":{"channel":"live:7","data":{"n": [1, 2.50, "\n"]}}}"#,
        r#"{"id":4,"history":{"channel":"a","limit":-1,"since":{"offset":3,"epoch":"e"},"reverse":true}}"#,
        r#"{"send":{"data":null}}"#,
        r#"{"id":5,"rpc":{"method":"a.B/C","data":"x"}}"#,
        r#"{"id":1,"error":{"code":100,"message":"m","temporary":true}}"#,
        r#"{"push":{"channel":"live:7","pub":{"data":{"n":44},"offset":44,"tags":{"a":"b"}}}}"#,
        "{}",
        "",
    ];
    if choices.one_in(16) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        let mut message = match format {
            Format::Json => {
                let line = LINES[usize::from(choices.byte()) % LINES.len()];
                [line.as_bytes(), b"\n"].concat()
            }
            Format::Protobuf => {
                let body = choices.bytes(60);
                [&[body.len() as u8][..], body].concat()
            }
        };
        if choices.one_in(16) {
            let at = usize::from(choices.byte()) % message.len();
            message[at] ^= choices.byte();
        }
        bytes.extend(message);
    }
    bytes
}
