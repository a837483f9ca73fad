//! Ends of endpoints that are not connected or in this process, and the end of a socket.

use super::*;
use switchboard_socket::{
    ErrorKind,
    SocketType::{Dish, Pair, Pull, Push, Radio},
};

/// Returns an endpoint of TCP without a listener.
fn unbound() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp://{}", free.local_addr().unwrap())
}

fn push_with_linger(linger: Option<Duration>) -> Socket {
    let mut options = SocketOptions::default();
    options.timeouts.linger = linger;
    Socket::new(Push, options).unwrap()
}

#[tokio::test]
async fn an_endpoint_without_a_connection_ends_after_linger() {
    let push = push_with_linger(Some(Duration::from_millis(20)));
    let endpoint = unbound();
    push.connect_to(&endpoint).await.unwrap();
    send(&push, "never read").await;
    push.disconnect(&endpoint).unwrap();
    until(&push, |stats| stats.peers.is_empty()).await;
    assert_eq!(push.stats().dropped, 1);
}

#[tokio::test]
async fn a_disconnected_endpoint_gets_what_waits_and_nothing_else() {
    let push = push_with_linger(None);
    let endpoint = unbound();
    push.connect_to(&endpoint).await.unwrap();
    send(&push, "waits").await;
    push.disconnect(&endpoint).unwrap();
    assert_eq!(push.try_send("late").unwrap_err().kind(), ErrorKind::TimedOut);
    let pull = socket(Pull);
    pull.bind_to(&endpoint).await.unwrap();
    assert_eq!(text(&pull).await, "waits");
    until(&push, |stats| stats.peers.is_empty()).await;
    assert_eq!(push.stats().dropped, 0);
}

#[tokio::test]
async fn an_inproc_endpoint_is_disconnected() {
    let [_, _, endpoint] = endpoints();
    let (pull, push) = pair(Pull, Push, &endpoint).await;
    send(&push, "before").await;
    push.disconnect(&endpoint).unwrap();
    assert_eq!(push.try_send("after").unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(push.stats().peers.is_empty() && pull.stats().peers.is_empty());
    assert_eq!(text(&pull).await, "before", "what was passed stays");
    assert_eq!(push.disconnect(&endpoint).unwrap_err().kind(), ErrorKind::InvalidInput);
    push.connect_to(&endpoint).await.unwrap();
    send(&push, "again").await;
    assert_eq!(text(&pull).await, "again");
}

#[tokio::test]
async fn an_inproc_endpoint_that_waits_for_its_name_is_disconnected() {
    let [_, _, endpoint] = endpoints();
    let push = socket(Push);
    push.connect_to(&endpoint).await.unwrap();
    push.disconnect(&endpoint).unwrap();
    let pull = socket(Pull);
    pull.bind_to(&endpoint).await.unwrap();
    assert!(push.stats().peers.is_empty() && pull.stats().peers.is_empty());
}

#[tokio::test]
async fn each_disconnect_ends_one_inproc_connection() {
    let [_, _, endpoint] = endpoints();
    let (one, other) = (socket(SocketType::Dealer), socket(SocketType::Dealer));
    one.bind_to(&endpoint).await.unwrap();
    other.connect_to(&endpoint).await.unwrap();
    other.connect_to(&endpoint).await.unwrap();
    let before = other.stats().peers.len();
    other.disconnect(&endpoint).unwrap();
    assert_eq!(other.stats().peers.len(), before - 1);
    other.disconnect(&endpoint).unwrap();
    assert!(other.stats().peers.is_empty());
}

#[tokio::test]
async fn a_group_that_was_joined_twice_needs_two_leaves() {
    for endpoint in endpoints() {
        let (radio, dish) = pair(Radio, Dish, &endpoint).await;
        dish.join("g").unwrap();
        dish.join("g").unwrap();
        dish.leave("g").unwrap();
        let receive = async {
            loop {
                send(&radio, ["g", "body"]).await;
                tokio::task::yield_now().await;
                if let Some(message) = dish.try_recv().unwrap() {
                    break message;
                }
            }
        };
        let message = timeout(LIMIT, receive).await.expect("the group is joined still");
        assert_eq!(message, Message::from(["g", "body"]));
        dish.leave("g").unwrap();
        assert_eq!(dish.leave("g").unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn a_socket_that_closes_while_it_binds_leaves_no_endpoint() {
    let pull = socket(Pull);
    // The name is resolved in another thread, so the socket closes before the endpoint is bound.
    let (bound, ()) = tokio::join!(pull.bind_to("tcp://localhost:0"), pull.close());
    assert_eq!(bound.unwrap_err().kind(), ErrorKind::Closed);
    assert!(pull.endpoints().is_empty());
    timeout(LIMIT, pull.close()).await.expect("no task is left");
}

#[tokio::test]
async fn a_monitor_ends_with_its_socket() {
    for endpoint in endpoints() {
        let (one, other) = pair(Pair, Pair, &endpoint).await;
        send(&other, "a").await;
        assert_eq!(text(&one).await, "a");
        let mut monitor = one.monitor();
        one.close().await;
        let mut events = 0;
        let rest = async {
            while monitor.next().await.is_some() {
                events += 1;
            }
        };
        timeout(LIMIT, rest).await.expect("the monitor ends");
        assert!(events > 0, "the endpoint was closed");
        assert_eq!(timeout(LIMIT, one.monitor().next()).await.unwrap(), None);
    }
}
