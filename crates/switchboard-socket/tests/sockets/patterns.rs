//! Rules of the socket types.

use super::*;
use switchboard_socket::{
    ErrorKind, Event, Server,
    SocketType::{Client, Dealer, Pub, Pull, Push, Rep, Req, Router, Sub, Xpub, Xsub},
    proxy::Steerable,
};

fn with(kind: SocketType, change: impl FnOnce(&mut SocketOptions)) -> Socket {
    let mut options = SocketOptions::default();
    change(&mut options);
    Socket::new(kind, options).unwrap()
}

#[tokio::test]
async fn push_sends_to_its_peers_in_turn() {
    for endpoint in endpoints() {
        let push = socket(Push);
        let bound = push.bind_to(&endpoint).await.unwrap().to_string();
        let pulls = [socket(Pull), socket(Pull), socket(Pull)];
        for pull in &pulls {
            pull.connect_to(&bound).await.unwrap();
        }
        until(&push, |stats| stats.peers.iter().filter(|peer| peer.is_connected).count() == 3).await;
        for number in 0..30 {
            send(&push, number.to_string()).await;
        }
        for pull in &pulls {
            for _ in 0..10 {
                recv(pull).await;
            }
            assert_eq!(pull.try_recv().unwrap(), None);
        }
    }
}

#[tokio::test]
async fn pull_receives_from_its_peers_in_turn() {
    let pull = socket(Pull);
    let bound = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let pushes = [socket(Push), socket(Push)];
    for (name, push) in ["a", "b"].iter().zip(&pushes) {
        push.connect_to(&bound).await.unwrap();
        for _ in 0..100 {
            send(push, *name).await;
        }
    }
    until(&pull, |stats| stats.peers.iter().map(|peer| peer.unread).sum::<usize>() == 200).await;
    for _ in 0..100 {
        let mut turn = [text(&pull).await, text(&pull).await];
        turn.sort_unstable();
        assert_eq!(turn, ["a", "b"]);
    }
}

#[tokio::test]
async fn req_and_rep_alternate() {
    let (rep, req) = pair(Rep, Req, "tcp://127.0.0.1:0").await;
    let kind = |error: switchboard_socket::Error| error.kind();
    assert_eq!(rep.send("early").await.map_err(kind), Err(ErrorKind::State));
    assert_eq!(req.recv().await.map_err(kind), Err(ErrorKind::State));
    send(&req, ["q", "r"]).await;
    assert_eq!(req.send("again").await.map_err(kind), Err(ErrorKind::State));
    assert_eq!(recv(&rep).await, Message::from(["q", "r"]));
    assert_eq!(rep.recv().await.map_err(kind), Err(ErrorKind::State));
    send(&rep, "a").await;
    assert_eq!(text(&req).await, "a");
    assert_eq!(req.recv().await.map_err(kind), Err(ErrorKind::State));
}

#[tokio::test]
async fn a_relaxed_req_drops_the_late_reply() {
    let req = with(Req, |options| {
        options.requests.relaxed = true;
        options.requests.correlate = true;
    });
    let router = socket(Router);
    join(&router, &req, "tcp://127.0.0.1:0").await;
    send(&req, "first").await;
    let first = recv(&router).await;
    send(&req, "second").await;
    let second = recv(&router).await;
    assert_eq!(first.frames().len(), 4, "id, number, empty frame, body");
    send(&router, first).await;
    send(&router, second).await;
    assert_eq!(text(&req).await, "second");
}

#[tokio::test]
async fn a_lost_reply_is_reported_and_the_next_request_works() {
    let (router, req) = pair(Router, Req, "tcp://127.0.0.1:0").await;
    let endpoint = router.endpoints()[0].to_string();
    send(&req, "q").await;
    recv(&router).await;
    router.close().await;
    let error = timeout(LIMIT, req.recv()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReplyLost, "{error}");
    let rep = socket(Rep);
    rep.bind_to(&endpoint).await.unwrap();
    send(&req, "again").await;
    assert_eq!(text(&rep).await, "again");
    send(&rep, "a").await;
    assert_eq!(text(&req).await, "a");
}

#[tokio::test]
async fn router_addresses_peers_by_id() {
    let router = with(Router, |options| options.routing.mandatory = true);
    let bound = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let dealers: Vec<Socket> =
        ["a", "b"].map(|id| with(Dealer, |options| options.routing.routing_id = id.into())).into();
    for dealer in &dealers {
        dealer.connect_to(&bound).await.unwrap();
        send(dealer, "hello").await;
    }
    let mut ids = [recv(&router).await.frames()[0].clone(), recv(&router).await.frames()[0].clone()];
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b"]);
    send(&router, ["b", "to b"]).await;
    send(&router, ["a", "to a"]).await;
    assert_eq!((text(&dealers[0]).await, text(&dealers[1]).await), ("to a".into(), "to b".into()));
    let error = router.send(["c", "nowhere"]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_router_counts_messages_to_unknown_peers() {
    let router = socket(Router);
    let mut monitor = router.monitor();
    send(&router, ["c", "nowhere"]).await;
    send(&router, ["c", "nowhere"]).await;
    assert_eq!(router.stats().dropped, 2);
    let event = monitor.next().await;
    assert!(matches!(event, Some(Event::Dropped { peer: None, count: 1, .. })), "{event:?}");
}

#[tokio::test]
async fn a_routing_id_belongs_to_one_peer_unless_handed_over() {
    for handover in [false, true] {
        let router = with(Router, |options| options.routing.handover = handover);
        let bound = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
        let dealer = || with(Dealer, |options| options.routing.routing_id = "id".into());
        let (first, second) = (dealer(), dealer());
        first.connect_to(&bound).await.unwrap();
        send(&first, "first").await;
        recv(&router).await;
        let mut monitor = router.monitor();
        second.connect_to(&bound).await.unwrap();
        loop {
            match timeout(LIMIT, monitor.next()).await.unwrap() {
                Some(Event::HandshakeFailed { reason, .. }) if !handover => {
                    assert!(reason.contains("routing id \"id\""), "{reason}");
                    break;
                }
                Some(Event::Disconnected { reason, .. }) if handover => {
                    assert!(reason.contains("took the routing id"), "{reason}");
                    break;
                }
                Some(_) => {}
                None => panic!("the monitor ended"),
            }
        }
        if !handover {
            send(&router, ["id", "to the first"]).await;
            assert_eq!(text(&first).await, "to the first");
        }
    }
}

#[tokio::test]
async fn routers_talk_to_each_other_by_id() {
    let [one, other] =
        ["one", "other"].map(|id| with(Router, |options| options.routing.routing_id = id.into()));
    join(&one, &other, "tcp://127.0.0.1:0").await;
    until(&one, |stats| stats.peers.len() == 1).await;
    send(&one, ["other", "hello"]).await;
    assert_eq!(recv(&other).await, Message::from(["one", "hello"]));
}

#[tokio::test]
async fn servers_address_clients_by_number() {
    let server = Server::bind("tcp://127.0.0.1:0").await.unwrap();
    let client = socket(Client);
    client.connect_to(&server.endpoints()[0].to_string()).await.unwrap();
    send(&client, "q").await;
    let (number, body) = server.recv_from().await.unwrap();
    assert_eq!(body, "q");
    server.send_to(number, "a").await.unwrap();
    assert_eq!(text(&client).await, "a");
    assert_eq!(server.send_to(number.wrapping_add(1), "a").await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(client.send(["two", "frames"]).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn xpub_reports_the_first_and_the_last_subscription() {
    let (xpub, sub) = pair(Xpub, Sub, "tcp://127.0.0.1:0").await;
    let xsub = socket(Xsub);
    xsub.connect_to(&xpub.endpoints()[0].to_string()).await.unwrap();
    sub.subscribe("a").unwrap();
    sub.subscribe("a").unwrap();
    assert_eq!(recv(&xpub).await.body(), b"\x01a");
    send(&xsub, "\u{1}a").await;
    send(&xsub, "\u{1}b").await;
    assert_eq!(recv(&xpub).await.body(), b"\x01b", "the topic a has a subscription already");
    sub.unsubscribe("a").unwrap();
    sub.unsubscribe("a").unwrap();
    assert_eq!(sub.unsubscribe("a").unwrap_err().kind(), ErrorKind::InvalidInput);
    xsub.close().await;
    let mut ended = [recv(&xpub).await, recv(&xpub).await].map(|message| message.body().to_vec());
    ended.sort_unstable();
    assert_eq!(ended, [b"\0a", b"\0b"]);
}

#[tokio::test]
async fn subscriptions_are_sent_again_after_a_reconnect() {
    let (xpub, sub) = pair(Xpub, Sub, "tcp://127.0.0.1:0").await;
    let endpoint = xpub.endpoints()[0].to_string();
    sub.subscribe("a").unwrap();
    recv(&xpub).await;
    xpub.close().await;
    let xpub = socket(Xpub);
    xpub.bind_to(&endpoint).await.unwrap();
    assert_eq!(recv(&xpub).await.body(), b"\x01a");
    send(&xpub, "a message").await;
    assert_eq!(text(&sub).await, "a message");
}

#[tokio::test]
async fn a_proxy_forwards_subscriptions_and_messages() {
    let (xsub, xpub, capture) = (socket(Xsub), socket(Xpub), socket(Push));
    let front = xsub.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let back = xpub.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let [_, _, inproc] = endpoints();
    let captured = socket(Pull);
    captured.bind_to(&inproc).await.unwrap();
    capture.connect_to(&inproc).await.unwrap();
    let (steerable, running) = Steerable::new(xsub, xpub, Some(capture));
    let running = tokio::spawn(running);
    let (publisher, subscriber) = (socket(Pub), socket(Sub));
    publisher.connect_to(&front).await.unwrap();
    subscriber.connect_to(&back).await.unwrap();
    subscriber.subscribe("t").unwrap();
    assert_eq!(recv(&captured).await.body(), b"\x01t", "a subscription goes to the publishers");
    loop {
        send(&publisher, "t1").await;
        tokio::task::yield_now().await;
        if subscriber.try_recv().unwrap().is_some() {
            break;
        }
    }
    assert_eq!(text(&captured).await, "t1");
    steerable.pause();
    steerable.resume();
    steerable.terminate();
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_application_changes_the_subscriptions_of_its_peers() {
    let xpub = {
        let mut options = SocketOptions::default();
        options.subscriptions.manual = true;
        switchboard_socket::Xpub::with_options(options).unwrap()
    };
    let bound = xpub.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    assert_eq!(xpub.subscribe_peer("early").unwrap_err().kind(), ErrorKind::State);
    let sub = socket(Sub);
    sub.connect_to(&bound).await.unwrap();
    sub.subscribe("").unwrap();
    assert_eq!(recv(xpub.as_ref()).await.body(), b"\x01");
    xpub.subscribe_peer("allowed").unwrap();
    send(xpub.as_ref(), "secret").await;
    send(xpub.as_ref(), "allowed 1").await;
    assert_eq!(text(&sub).await, "allowed 1");
}

#[tokio::test]
async fn an_application_sends_to_the_peer_of_the_last_change_alone() {
    for endpoint in endpoints() {
        let xpub = {
            let mut options = SocketOptions::default();
            options.subscriptions.manual = true;
            switchboard_socket::Xpub::with_options(options).unwrap()
        };
        let bound = xpub.bind_to(&endpoint).await.unwrap().to_string();
        assert_eq!(xpub.send_to_peer("early").unwrap_err().kind(), ErrorKind::State);
        let (first, second) = (socket(Sub), socket(Sub));
        for sub in [&first, &second] {
            sub.connect_to(&bound).await.unwrap();
            sub.subscribe("a").unwrap();
            assert_eq!(recv(xpub.as_ref()).await.body(), b"\x01a");
            xpub.subscribe_peer("a").unwrap();
            xpub.send_to_peer("a last").unwrap();
        }
        send(xpub.as_ref(), "a next").await;
        for sub in [&first, &second] {
            assert_eq!((text(sub).await, text(sub).await), ("a last".to_owned(), "a next".to_owned()));
        }
    }
}

#[tokio::test]
async fn notices_report_connections() {
    let router = with(Router, |options| {
        options.notices.hello = Some("hello".into());
        options.notices.disconnect = Some("gone".into());
    });
    let bound = router.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    let dealer = with(Dealer, |options| {
        options.routing.routing_id = "id".into();
        options.notices.hiccup = Some("hiccup".into());
    });
    dealer.connect_to(&bound).await.unwrap();
    assert_eq!(text(&dealer).await, "hello");
    let second = with(Dealer, |options| options.routing.routing_id = "second".into());
    second.connect_to(&bound).await.unwrap();
    assert_eq!(text(&second).await, "hello");
    second.close().await;
    assert_eq!(recv(&router).await, Message::from(["second", "gone"]));
    router.close().await;
    assert_eq!(text(&dealer).await, "hiccup");
}

#[tokio::test]
async fn a_rep_whose_peer_is_gone_drops_its_reply() {
    let (rep, req) = pair(Rep, Req, "tcp://127.0.0.1:0").await;
    send(&req, "q").await;
    recv(&rep).await;
    req.close().await;
    until(&rep, |stats| stats.peers.is_empty()).await;
    send(&rep, "too late").await;
    assert_eq!(rep.stats().dropped, 1);
}
