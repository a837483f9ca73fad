//! A reply that comes after its request was dropped or has timed out is not taken for that of the next request.
//!
//! The servers here hold back the reply to one list until another service is requested on the same connection, and then
//! send both at once, in the order of the requests.
#![cfg(any(feature = "redis", feature = "zookeeper"))]
#![allow(clippy::unwrap_used, reason = "what fails to be set up fails the test")]

mod suite;

use std::sync::Arc;
use switchboard::discover::Registry;
use tokio::sync::Notify;

/// The value of the only instance of a service.
fn value(service: &str, id: &str) -> String {
    format!(r#"{{"service":"{service}","id":"{id}","address":"tcp://10.0.0.7:80"}}"#)
}

/// Watches `late` until its list is requested, gives that up, and watches `next`.
async fn dropped_for_next(registry: &dyn Registry, requested: &Notify) {
    let late = registry.watch("late");
    requested.notified().await;
    drop(late);
    let mut next = registry.watch("next");
    suite::until(&mut next, "2").await;
    assert_eq!(next.latest().instances[0].service, "next");
    // The connection is as it was: the service whose reply was late is read anew.
    let mut late = registry.watch("late");
    suite::until(&mut late, "1").await;
    assert_eq!(late.latest().instances[0].service, "late");
}

#[cfg(feature = "redis")]
mod redis {
    use super::{Arc, Notify, Registry, dropped_for_next, suite, value};
    use suite::redis::{list, read, subscribed};
    use switchboard_registry::Redis;
    use tokio::{
        io::{AsyncWriteExt, BufStream},
        net::{TcpListener, TcpStream},
        task::JoinSet,
    };

    /// Answers the lists of `late` together with the next list of `next` on its connection, and the second list of
    /// `late` at once.
    async fn converse(stream: TcpStream, requested: Arc<Notify>) -> Option<()> {
        let mut stream = BufStream::new(stream);
        let mut held_back = None;
        let mut lists_late = 0;
        loop {
            let words = read(&mut stream).await?;
            let is_of = |service: &str| words.iter().any(|word| word.contains(&format!("/{service}/")));
            let answer = match words[0].to_ascii_uppercase().as_str() {
                "EVALSHA" | "EVAL" if is_of("late") => {
                    lists_late += 1;
                    let answer = list("1", &value("late", "1"));
                    if lists_late == 1 {
                        held_back = Some(answer);
                        requested.notify_one();
                        continue;
                    }
                    answer
                }
                "EVALSHA" | "EVAL" => held_back.take().unwrap_or_default() + &list("2", &value("next", "2")),
                "SUBSCRIBE" => subscribed(&words[1]),
                _ => "+OK\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).await.ok()?;
            stream.flush().await.ok()?;
        }
    }

    async fn serve(requested: &Arc<Notify>) -> (Redis, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (mut server, requested) = (JoinSet::new(), requested.clone());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, requested.clone()));
            }
        });
        (Redis::connect(&url, "", suite::believing()).unwrap(), server)
    }

    #[tokio::test]
    async fn reply_to_a_dropped_request_is_not_that_of_the_next() {
        let requested = Arc::new(Notify::new());
        let (registry, _server) = serve(&requested).await;
        dropped_for_next(&registry, &requested).await;
    }

    #[tokio::test]
    async fn reply_to_a_request_that_timed_out_is_not_that_of_the_next() {
        let requested = Arc::new(Notify::new());
        let (registry, _server) = serve(&requested).await;
        let late = registry.watch("late");
        requested.notified().await;
        suite::until_is(&mut late.clone(), |late| late.state().error.is_some()).await;
        drop(late);
        let mut next = registry.watch("next");
        suite::until(&mut next, "2").await;
        assert_eq!(next.latest().instances[0].service, "next");
    }
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use super::{Arc, Notify, dropped_for_next, suite, value};
    use suite::zookeeper::{GET_CHILDREN, GET_CHILDREN_2, body, read, response, welcome};
    use switchboard_registry::ZooKeeper;
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
        task::JoinSet,
    };

    /// Holds back the first list of `late`, and all replies after it, until `next` is named.
    async fn converse(mut stream: TcpStream, requested: Arc<Notify>) -> Option<()> {
        welcome(&mut stream).await?;
        let (mut held_back, mut holds, mut lists_late) = (Vec::new(), false, 0);
        loop {
            let request = read(&mut stream).await?;
            let (service, id) = if request.names("/next") { ("next", "2") } else { ("late", "1") };
            let is_list = [GET_CHILDREN, GET_CHILDREN_2].contains(&request.operation);
            if is_list && service == "late" {
                lists_late += 1;
                holds = lists_late == 1;
            } else if service == "next" {
                holds = false;
            }
            let body = body(request.operation, id, value(service, id).as_bytes());
            held_back.extend(response(request.xid, 0, &body));
            if holds {
                requested.notify_one();
            } else {
                stream.write_all(&std::mem::take(&mut held_back)).await.ok()?;
            }
        }
    }

    #[tokio::test]
    async fn reply_to_a_dropped_request_is_not_that_of_the_next() {
        let requested = Arc::new(Notify::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (mut server, noted) = (JoinSet::new(), requested.clone());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, noted.clone()));
            }
        });
        let registry = ZooKeeper::connect(&host, "", suite::believing());
        dropped_for_next(&registry, &requested).await;
    }
}
