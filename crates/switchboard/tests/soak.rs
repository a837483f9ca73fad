//! Large messages for a while: the process must not grow.

mod support;

use support::*;
use switchboard::{Channel, Limit, Server};

const MESSAGE: usize = 10 << 20;
const MESSAGES: usize = 100;

#[tokio::test]
async fn a_gigabyte_leaves_nothing_behind() {
    let server = Server::new().add(Probe::default()).limit(Limit::MessageBytesMax, 16 << 20);
    let running = server.listen("tcp://127.0.0.1:0").start().await.expect("start");
    let channel = Channel::builder(&running.url()).limit(Limit::MessageBytesMax, 16 << 20);
    let channel = channel.connections(1).connect().await.expect("connect");
    let mut after_ten = 0;
    for n in 0..MESSAGES {
        let reply = mirror(&channel, vec![n as u8; MESSAGE]).await.expect("echo");
        assert!(reply.len() == MESSAGE && reply[MESSAGE - 1] == n as u8);
        if n + 1 == 10 {
            after_ten = resources::resident();
        }
    }
    let end = resources::resident();
    assert!(
        end < after_ten + MESSAGE as u64,
        "{} MiB after ten messages, {} MiB after {MESSAGES}",
        after_ten >> 20,
        end >> 20
    );
}
