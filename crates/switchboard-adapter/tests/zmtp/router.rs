//! Peers of a ROUTER and of a DEALER of the application.

use super::peer::{Peer, closed, settled, soon};
use bytes::Bytes;
use switchboard::{Code, Limit, Running, Server};
use switchboard_adapter::{Zmtp, ZmtpDealer, ZmtpRouter, ZmtpRouterOptions};
use switchboard_message::Bus;
use switchboard_wire::zmtp::{Settings, SocketType};

async fn start(options: ZmtpRouterOptions) -> (Running, Zmtp, ZmtpRouter) {
    let types = [SocketType::Dealer, SocketType::Req, SocketType::Router];
    let (zmtp, router) = Zmtp::new(Bus::new()).router(types, options);
    let running = Server::new().plugin(zmtp.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    (running, zmtp, router)
}

async fn dealer(running: &Running, identity: &'static str) -> Option<Peer> {
    let settings = Settings::new(SocketType::Dealer).with_identity(identity).unwrap();
    Peer::open(running, settings).await
}

fn frames(frames: &[&'static str]) -> Vec<Bytes> {
    frames.iter().map(|frame| Bytes::from_static(frame.as_bytes())).collect()
}

/// Waits until so many peers are connected.
async fn until_peers(router: &ZmtpRouter, count: usize) {
    soon(async {
        while router.sender().peers() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn messages_have_the_identity_of_their_peer() {
    let (running, zmtp, mut router) = start(ZmtpRouterOptions::default()).await;
    let mut alice = dealer(&running, "alice").await.unwrap();
    let mut req = Peer::connect(&running, SocketType::Req).await;
    alice.send(&[b"hello", b"", b"there"]).await;
    let message = soon(router.recv()).await.unwrap();
    assert_eq!((&message.identity[..], message.frames), (&b"alice"[..], frames(&["hello", "", "there"])));
    req.send(&[b"", b"question"]).await;
    let message = soon(router.recv()).await.unwrap();
    assert_eq!((message.identity[0], message.identity.len()), (0, 5), "a generated identity");
    router.send(&message.identity, frames(&["", "reply"])).await.unwrap();
    assert_eq!(req.message().await.unwrap(), [b"".to_vec(), b"reply".to_vec()]);
    router.send(b"alice", frames(&["1", "2"])).await.unwrap();
    assert_eq!(alice.message().await.unwrap(), [b"1", b"2"]);

    let status = router.send(b"carol", frames(&["x"])).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "no connected peer has the identity \"carol\"")
    );
    assert_eq!(router.send(b"alice", Vec::new()).await.unwrap_err().code(), Code::InvalidArgument);
    // The identity belongs to the first peer, and is free after it.
    let mut second = dealer(&running, "alice").await.unwrap();
    assert!(second.event().await.is_none());
    assert_eq!(closed(&zmtp, "identity"), 1);
    router.send(b"alice", frames(&["3"])).await.unwrap();
    assert_eq!(alice.message().await.unwrap(), [b"3"]);
    drop(alice);
    until_peers(&router, 1).await;
    assert!(!router.sender().is_connected(b"alice"));
    dealer(&running, "alice").await.unwrap();
    assert_eq!(zmtp.stats().routed, 2);
}

#[tokio::test]
async fn peers_wait_for_an_application_that_does_not_receive() {
    let mut options = ZmtpRouterOptions::default();
    options.received_messages_max = 2;
    let (running, _zmtp, mut router) = start(options).await;
    let mut peer = dealer(&running, "a").await.unwrap();
    let mut other = dealer(&running, "b").await.unwrap();
    for at in 0..100_u8 {
        peer.send(&[&[at]]).await;
    }
    other.send(&[b"x"]).await;
    let (mut from_peer, mut from_other) = (0_u8, 0);
    while from_peer < 100 || from_other < 1 {
        let message = soon(router.recv()).await.unwrap();
        if message.identity == "b" {
            from_other += 1;
        } else {
            assert_eq!(message.frames, [vec![from_peer]], "in order, none lost");
            from_peer += 1;
        }
    }
    settled(&mut peer).await;
}

#[tokio::test]
async fn the_application_waits_for_a_peer_that_does_not_read() {
    let mut options = ZmtpRouterOptions::default();
    options.peer_bytes_max = 64 << 10;
    let (running, zmtp, router) = start(options).await;
    let mut peer = dealer(&running, "slow").await.unwrap();
    let large = || vec![Bytes::from(vec![b'x'; 60 << 10])];
    let (mut sent, mut refusals) = (0, 0);
    let status = loop {
        match router.sender().try_send(b"slow", large()) {
            Ok(()) => (sent, refusals) = (sent + 1, 0),
            // The buffers of the connection are full after a while.
            Err(status) if refusals > 1000 => break status,
            Err(_) => {
                refusals += 1;
                tokio::task::yield_now().await;
            }
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("64 KiB of messages wait for it (peer_bytes_max)"), "{status}");
    let sending = tokio::spawn({
        let sender = router.sender();
        let last = large();
        async move { sender.send(b"slow", last).await }
    });
    for _ in 0..=sent {
        assert_eq!(peer.message().await.unwrap()[0].len(), 60 << 10);
    }
    soon(sending).await.unwrap().unwrap();
    assert_eq!(closed(&zmtp, "lagged"), 0);

    // A send that waits ends with the peer.
    while router.sender().try_send(b"slow", large()).is_ok() {
        tokio::task::yield_now().await;
    }
    let sender = router.sender();
    let waiting = tokio::spawn(async move { sender.send(b"slow", large()).await });
    drop(peer);
    until_peers(&router, 0).await;
    // It may have been taken before the end was found.
    let ended = soon(waiting).await.unwrap();
    assert!(ended.is_ok() || ended.unwrap_err().code() == Code::NotFound);
    // The application does not want its peers any more.
    let mut last = dealer(&running, "last").await.unwrap();
    drop(router);
    last.send(&[b"x"]).await;
    assert!(last.event().await.is_none());
    assert_eq!(closed(&zmtp, "router"), 1);
}

#[tokio::test]
async fn a_dealer_sends_to_its_peers_in_turn() {
    let mut options = ZmtpRouterOptions::default();
    options.peer_bytes_max = 64 << 10;
    let (zmtp, mut dealer) = Zmtp::new(Bus::new()).dealer([SocketType::Rep], options);
    let running = Server::new().plugin(zmtp.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    assert_eq!(dealer.sender().try_send(frames(&["x"])).unwrap_err().code(), Code::Unavailable);
    assert_eq!(dealer.send(Vec::new()).await.unwrap_err().code(), Code::InvalidArgument);
    // A message waits for the first peer.
    let sender = dealer.sender();
    let waiting = tokio::spawn(async move { sender.send(frames(&["0", "", "first"])).await });
    let mut one = Peer::connect(&running, SocketType::Rep).await;
    assert_eq!(one.message().await.unwrap(), [b"0".to_vec(), Vec::new(), b"first".to_vec()]);
    soon(waiting).await.unwrap().unwrap();
    one.send(&[b"0", b"", b"done"]).await;
    assert_eq!(soon(dealer.recv()).await.unwrap(), frames(&["0", "", "done"]));
    let mut two = Peer::connect(&running, SocketType::Rep).await;
    until_peers_of(&dealer, 2).await;
    for number in ["1", "2", "3", "4"] {
        dealer.send(frames(&[number, "", "task"])).await.unwrap();
    }
    let (first, second) = (two.message().await.unwrap(), one.message().await.unwrap());
    assert_eq!((&first[0][..], &second[0][..]), (&b"1"[..], &b"2"[..]));
    let (first, second) = (two.message().await.unwrap(), one.message().await.unwrap());
    assert_eq!((&first[0][..], &second[0][..]), (&b"3"[..], &b"4"[..]));
    // One that does not read is passed by: the other gets all that its buffers have no room for.
    let reading = tokio::spawn(async move {
        let mut count = 0;
        while let Some(message) = two.message().await {
            if message.len() == 1 {
                break;
            }
            count += 1;
        }
        (two, count)
    });
    for _ in 0..300 {
        let large = vec![Bytes::new(), Bytes::from(vec![b'x'; 60 << 10])];
        soon(dealer.send(large)).await.unwrap();
    }
    assert_eq!((dealer.sender().peers(), closed(&zmtp, "lagged")), (2, 0));
    drop(one);
    until_peers_of(&dealer, 1).await;
    dealer.send(frames(&["end"])).await.unwrap();
    let (_two, count) = soon(reading).await.unwrap();
    assert!(count > 150, "{count}");
}

async fn until_peers_of(dealer: &ZmtpDealer, count: usize) {
    soon(async {
        while dealer.sender().peers() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_pair_has_one_peer_at_a_time() {
    let (zmtp, mut pair) = Zmtp::new(Bus::new()).pair(ZmtpRouterOptions::default());
    let running = Server::new().plugin(zmtp.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    // A message waits for the first peer.
    let waiting = tokio::spawn({
        let sender = pair.sender();
        async move { sender.send(frames(&["early"])).await }
    });
    let mut first = Peer::connect(&running, SocketType::Pair).await;
    assert_eq!(first.message().await.unwrap(), [b"early"]);
    soon(waiting).await.unwrap().unwrap();
    first.send(&[b"a", b"b"]).await;
    assert_eq!(soon(pair.recv()).await.unwrap(), frames(&["a", "b"]));
    assert!(pair.is_connected());
    let mut second = Peer::connect(&running, SocketType::Pair).await;
    assert!(second.event().await.is_none());
    soon(async {
        while closed(&zmtp, "pair") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(first);
    soon(async {
        while pair.is_connected() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut third = Peer::connect(&running, SocketType::Pair).await;
    soon(pair.send(frames(&["next"]))).await.unwrap();
    assert_eq!(third.message().await.unwrap(), [b"next"]);
    running.stop(switchboard::StopOptions::new()).await;
}

#[tokio::test]
async fn two_pairs_are_ambiguous() {
    let (zmtp, _one) = Zmtp::new(Bus::new()).pair(ZmtpRouterOptions::default());
    let (zmtp, _other) = zmtp.pair(ZmtpRouterOptions::default());
    let error = Server::new().plugin(zmtp).listen("tcp://127.0.0.1:0").start().await.err().unwrap();
    assert!(error.to_string().contains("PAIR peers are mapped to PAIR 0 of the application"), "{error}");
}

#[tokio::test]
async fn each_listener_has_its_mapping() {
    let (zmtp, mut router) = Zmtp::new(Bus::new()).router([], ZmtpRouterOptions::default());
    let server = || Server::new().plugin(zmtp.clone());
    let running = server()
        .listen("tcp://127.0.0.1:0?zmtp.req=router&zmtp.sub=none")
        .listen("tcp://127.0.0.1:0")
        .start()
        .await
        .unwrap();
    let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
    let open = |at: usize, kind| Peer::open_at(addresses[at].clone(), Settings::new(kind));
    let mut req = open(0, SocketType::Req).await.unwrap();
    req.send(&[b"", b"question"]).await;
    assert_eq!(soon(router.recv()).await.unwrap().frames, frames(&["", "question"]));
    assert!(open(0, SocketType::Sub).await.is_none() && open(1, SocketType::Req).await.is_none());
    settled(&mut open(1, SocketType::Sub).await.unwrap()).await;
    running.stop(switchboard::StopOptions::new()).await;
    for (options, text) in [
        ("zmtp.req=router&zmtp.req=topics", "zmtp.req=topics: REQ peers are mapped twice"),
        ("zmtp.req=topics", "REQ peers cannot talk to the topics of the bus"),
        ("zmtp.push=pipeline", "call Zmtp::pipeline"),
        ("nats.x=1", "the server has no plugin \"nats\", which an option names"),
    ] {
        let error = server().listen(format!("tcp://127.0.0.1:0?{options}")).start().await.err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn each_listener_has_its_limit_of_a_message() {
    let (zmtp, mut router) = Zmtp::new(Bus::new()).router([SocketType::Dealer], ZmtpRouterOptions::default());
    let (mapped, plain) = ("tcp://127.0.0.1:0?zmtp.dealer=router", "tcp://127.0.0.1:0");
    let running = Server::new()
        .plugin(zmtp)
        .limit(Limit::MessageBytesMax, 4096)
        .listen_with(mapped, [(Limit::MessageBytesMax, 2048)])
        .listen_with(mapped, [(Limit::MessageBytesMax, 8192)])
        .listen_with(plain, [(Limit::MessageBytesMax, 16_384)])
        .listen(mapped)
        .listen(plain)
        .start()
        .await
        .unwrap();
    let addresses: Vec<_> = running.addresses().iter().map(ToString::to_string).collect();
    for (address, limit) in addresses.into_iter().zip([2048, 8192, 16_384, 4096, 4096]) {
        let mut peer = Peer::open_at(address, Settings::new(SocketType::Dealer)).await.unwrap();
        let largest = vec![b'x'; limit];
        peer.send(&[&largest]).await;
        assert_eq!(soon(router.recv()).await.unwrap().frames[0].len(), limit);
        peer.send(&[&[&largest[..], b"x"].concat()]).await;
        assert_eq!(peer.event().await, None, "{limit}");
    }
    running.stop(switchboard::StopOptions::new()).await;
}
