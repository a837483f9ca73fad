//! The JSON-RPC machine against arbitrary bytes.

use super::{Choices, feed::pieces, machines::limits};
use crate::{
    Input, Kind, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, Params, ServiceInfo, Status, jsonrpc,
    wire::{ServerEvent, ServerWire},
};
use std::sync::Arc;

static MATH: ServiceInfo = ServiceInfo {
    name: "test.Math",
    methods: &[
        MethodInfo::new("Add", Kind::Unary).params(Params::Arguments(&["a", "b"])),
        MethodInfo::new("Count", Kind::ServerStream),
        MethodInfo::new("Late", Kind::Unary),
        MethodInfo::new("Fail", Kind::Unary),
    ],
    descriptor: &[],
};

/// Feeds the server with bytes of a client that follows no rule. Checks that it does not panic, that calls and
/// responses do not depend on the split, that every response line is JSON, that it respects the limits, and that each
/// `"id"` or error has at most one response.
///
/// # Panics
/// If the property does not hold.
pub fn jsonrpc_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut limits = limits(&mut choices);
    limits.message_bytes_max = limits.message_bytes_max.max(60);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let text = text(&mut choices);
    let run = |steps: &[u8]| {
        let mut table = MethodTable::default();
        table.add(&MATH).expect("one service");
        let mut server = jsonrpc::Server::lines(limits, Arc::new(table));
        let (mut input, mut out) = (Input::default(), Outbox::new());
        let (mut events, mut late, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut ended = false;
        'connection: for piece in pieces(&text, steps) {
            input.extend(piece);
            loop {
                match server.recv(&mut input, &mut out) {
                    Ok(Some(ServerEvent::Open { id, head, first, .. })) => {
                        let first = first.expect("a request has one message");
                        assert!(first.len() <= limits.message_bytes_max as usize, "{} bytes", first.len());
                        events.push(format!("{:?} {} {first:?}", head.method, head.oneway));
                        match head.method.0 {
                            _ if head.oneway => {}
                            0 => server.reply(id, (&first).into(), &mut out),
                            1 => {
                                server.item(id, &first, false, &mut out);
                                server.end(id, Ok(&Metadata::new()), &mut out);
                            }
                            2 => late.push(id),
                            _ => server.end(id, Err(&Status::aborted("so")), &mut out),
                        }
                    }
                    Ok(Some(ServerEvent::Cancel { .. } | ServerEvent::Handled)) => {}
                    Ok(Some(event)) => panic!("{event:?}"),
                    Ok(None) => break,
                    Err(_) => {
                        ended = true;
                        break 'connection;
                    }
                }
            }
            assert!(input.len() <= limits.message_bytes_max as usize, "{} bytes are kept", input.len());
        }
        for id in late {
            server.reply(id, Outgoing::Lent(b"0"), &mut out);
        }
        written.extend(out.take_all());
        if !ended {
            assert_eq!(server.unsent_response_bytes(), 0);
        }
        (events, written, ended)
    };
    let whole = run(&[]);
    assert!(whole == run(&steps), "the split makes a difference to {:?}", whole.0);
    for line in String::from_utf8(whole.1).expect("answers are text").lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

/// Mostly requests in all their forms, with noise in between.
fn text(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut text = Vec::new();
    let mut open = 0usize;
    while !choices.is_over() {
        if choices.one_in(32) {
            text.extend_from_slice(choices.bytes(6));
        }
        if choices.one_in(6) {
            text.push(b'[');
            open += 1;
        }
        let method =
            ["test.Math.Add", "Math/Count", "Math.Late", "Math.Fail", "Math.Nope", "rpc.cancel", "\\u0041"];
        let method = method[usize::from(choices.byte()) % method.len()];
        let ids = ["1", "\"a\"", "null", "1.0", "{}", "\"\\u00e9\"", ""];
        let id = ids[usize::from(choices.byte()) % ids.len()];
        let params = [
            "",
            ",\"params\":[1,2]",
            ",\"params\":{\"id\":1}",
            ",\"params\":[]",
            ",\"params\":7",
            ",\"params\":[[],{}]",
        ];
        let params = params[usize::from(choices.byte()) % params.len()];
        let id = if id.is_empty() { String::new() } else { format!(",\"id\":{id}") };
        let version = if choices.one_in(16) { "1.0" } else { "2.0" };
        text.extend_from_slice(
            format!("{{\"jsonrpc\":\"{version}\",\"method\":\"{method}\"{params}{id}}}").as_bytes(),
        );
        match open {
            0 => text.extend_from_slice(if choices.one_in(2) { b"\n" } else { b"" }),
            _ if choices.one_in(3) => {
                text.push(b']');
                open -= 1;
            }
            _ => text.push(b','),
        }
    }
    text
}
