//! A reply that comes after its caller gave up reaches no other caller, on every wire that many callers share.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use support::{
    gate::{Gate, PASS, WAIT, WIRES, message},
    raw::soon,
};
use switchboard::{Channel, Codec, Server};

/// Calls of those who give up, and of those who come after them.
const CALLS: u64 = 8;

#[tokio::test]
async fn late_replies_reach_no_other_caller() {
    let gate = Gate::default();
    let server = Server::new().add(gate.clone()).alias("kiss/1", PASS.path).alias("kiss/2", WAIT.path);
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let address = running.url().trim_start_matches("tcp://").to_owned();
    for wire in WIRES {
        let url = format!("{}&connections=1", wire.replace("ADDRESS", &address));
        let channel = Channel::connect(&url).await.unwrap();
        let codec = channel.codec(Codec::Proto);
        let call = |method, number| {
            let channel = channel.clone();
            async move {
                let sent = message(number, codec);
                let call = channel.unary(method, codec, Ok(sent.clone()), |_, bytes| Ok(bytes));
                (sent, call.await.map(switchboard::client::Response::into_inner))
            }
        };
        // Callers give up once the server has their calls.
        for number in 0..CALLS {
            let first = tokio::spawn(call(&WAIT, number));
            soon(gate.arrived.notified()).await;
            first.abort();
            assert!(first.await.is_err());
        }
        let mut second = Vec::new();
        for number in CALLS..2 * CALLS {
            second.push(tokio::spawn(call(&WAIT, number)));
            soon(gate.arrived.notified()).await;
        }
        // Handlers end in the order in which they came: those of the first callers first, where they still run.
        let permits = 2 * CALLS as usize;
        gate.open.add_permits(permits);
        for second in second {
            let (sent, reply) = soon(second).await.unwrap();
            assert_eq!(reply.unwrap(), sent, "{wire}: the reply of another caller");
        }
        let (sent, reply) = soon(call(&PASS, 7777)).await;
        assert_eq!(reply.unwrap(), sent, "{wire}: the reply of another caller");
        gate.open.forget_permits(permits);
    }
}
