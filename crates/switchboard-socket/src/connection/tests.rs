//! A connection whose peer is silent or does not read.

use super::*;
use crate::{SocketOptions, core::Command};
use std::task::{Context, Waker};

/// Room of a pipe in memory: the handshake fits, in parts.
const PIPE_BYTES: usize = 64;

/// Returns a connection whose peer completed the handshake, and the other end of its pipe.
async fn open(
    core: &Arc<Core>,
    peer: &Arc<Core>,
    known: Option<PeerId>,
) -> (Link, PeerId, tokio::io::DuplexStream) {
    let (mut near, mut far) = tokio::io::duplex(PIPE_BYTES);
    let ends = Ends { endpoint: "pipe".into(), address: "pipe".into(), is_accepted: true };
    let (own, other) =
        tokio::join!(handshake::run(core, &mut near, &ends), handshake::run(peer, &mut far, &ends));
    let (own, _) = (own.unwrap(), other.unwrap());
    let metadata =
        PeerMetadata { address: "pipe".into(), user_id: "".into(), properties: own.peer.properties.clone() };
    let (kind, identity) = (own.peer.socket, &own.peer.identity);
    let attach = Attach { endpoint: &"pipe".into(), kind, identity, known, metadata };
    let attached = core.attach(attach).unwrap();
    let id = attached.id;
    (Link::new(core.clone(), Box::new(near), own, attached), id, far)
}

#[tokio::test]
async fn pings_and_pongs_for_a_peer_that_does_not_read_are_bounded() {
    let core = Core::new(SocketType::Dealer, SocketOptions::default()).unwrap();
    let peer = Core::new(SocketType::Dealer, SocketOptions::default()).unwrap();
    let (mut link, id, mut far) = open(&core, &peer, None).await;
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..1000 {
        core.command_to(id, Command::Ping);
        assert!(link.poll(&mut cx).is_pending());
    }
    assert!(link.waiting_keepalives() <= 64, "{}", link.waiting_keepalives());
    // Its message is received once it reads.
    far.write_all(b"\x00\x01x").await.unwrap();
    assert!(link.poll(&mut cx).is_pending());
    assert_eq!(core.try_recv().unwrap(), None);
    let mut bytes = [0; PIPE_BYTES];
    while link.waiting_keepalives() > 0 {
        far.read_exact(&mut bytes).await.unwrap();
        assert!(link.poll(&mut cx).is_pending());
    }
    assert_eq!(core.try_recv().unwrap(), Some("x".into()));
    core.detach(id, Batch::default(), "end");
}

#[tokio::test]
async fn a_hello_message_that_was_not_sent_is_not_kept_for_the_next_connection() {
    let mut options = SocketOptions::default();
    options.notices.hello = Some("hello".into());
    let core = Core::new(SocketType::Dealer, options).unwrap();
    let peer = Core::new(SocketType::Dealer, SocketOptions::default()).unwrap();
    let id = core.add_persistent(&"pipe".into()).unwrap();
    assert_eq!(core.try_send("waits".into()).unwrap(), None);
    let (link, ..) = open(&core, &peer, Some(id)).await;
    let (_, unsent) = link.into_parts();
    core.detach(id, unsent, "the connection ended before its first write");
    let (mut link, _, mut far) = open(&core, &peer, Some(id)).await;
    assert!(link.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(link);
    let mut bytes = Vec::new();
    far.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"\x00\x05hello\x00\x05waits");
}

#[tokio::test]
async fn an_idle_connection_holds_no_buffers_and_its_task_is_small() {
    let core = Core::new(SocketType::Router, SocketOptions::default()).unwrap();
    let peer = Core::new(SocketType::Dealer, SocketOptions::default()).unwrap();
    let (mut link, _, mut far) = open(&core, &peer, None).await;
    let mut cx = Context::from_waker(Waker::noop());
    far.write_all(b"\x00\x01x\x00\x06in ").await.unwrap();
    assert!(link.poll(&mut cx).is_pending());
    assert!(link.has_buffers(), "a part of a message has arrived");
    far.write_all(b"two").await.unwrap();
    assert!(link.poll(&mut cx).is_pending());
    assert!(!link.has_buffers());
    let request = core.try_recv().unwrap().unwrap();
    assert_eq!(core.try_recv().unwrap().unwrap().body(), b"in two");
    assert_eq!(core.try_send(request).unwrap(), None);
    assert!(link.poll(&mut cx).is_pending());
    assert!(!link.has_buffers());
    let mut reply = [0; 3];
    far.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"\x00\x01x");
    assert!(size_of::<ConnectionTask>() <= 256, "{}", size_of::<ConnectionTask>());
}
