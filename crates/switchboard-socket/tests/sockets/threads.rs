//! Sockets on several threads, and peers that are killed again and again.

use super::*;
use switchboard_socket::SocketType::{Dealer, Pull, Push, Rep, Req, Router};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_message_arrives_once_from_many_threads() {
    const PER_TASK: usize = 5_000;
    for endpoint in endpoints() {
        let pull = socket(Pull);
        let bound = pull.bind_to(&endpoint).await.unwrap().to_string();
        let mut senders = Vec::new();
        for number in 0..3 {
            let push = socket(Push);
            push.connect_to(&bound).await.unwrap();
            for task in 0..2 {
                let push = push.clone();
                senders.push(tokio::spawn(async move {
                    for index in 0..PER_TASK {
                        send(&push, format!("{number}/{task}/{index}")).await;
                    }
                }));
            }
        }
        let total = senders.len() * PER_TASK;
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let pull = pull.clone();
                tokio::spawn(async move {
                    let mut texts = Vec::new();
                    // The other receiver may take the last message: silence is the end.
                    while let Ok(message) = timeout(Duration::from_secs(2), pull.recv()).await {
                        texts.push(String::from_utf8(message.unwrap().body().to_vec()).unwrap());
                    }
                    texts
                })
            })
            .collect();
        for sender in senders {
            timeout(LIMIT, sender).await.unwrap().unwrap();
        }
        let mut texts = Vec::new();
        for receiver in receivers {
            texts.extend(timeout(LIMIT, receiver).await.unwrap().unwrap());
        }
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), total, "{endpoint}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_work_from_many_threads() {
    for endpoint in endpoints() {
        let (router, workers) = (socket(Router), socket(Dealer));
        let front = router.bind_to(&endpoint).await.unwrap().to_string();
        let [_, _, back] = endpoints();
        workers.bind_to(&back).await.unwrap();
        let queue = tokio::spawn({
            let (router, workers) = (router.clone(), workers.clone());
            async move { switchboard_socket::proxy::proxy(&router, &workers, None).await }
        });
        for _ in 0..3 {
            let rep = socket(Rep);
            rep.connect_to(&back).await.unwrap();
            tokio::spawn(async move {
                while let Ok(message) = rep.recv().await {
                    send(&rep, message).await;
                }
            });
        }
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let front = front.clone();
                tokio::spawn(async move {
                    let req = socket(Req);
                    req.connect_to(&front).await.unwrap();
                    for number in 0..200 {
                        let question = format!("{client}/{number}");
                        send(&req, question.as_str()).await;
                        assert_eq!(text(&req).await, question);
                    }
                })
            })
            .collect();
        for client in clients {
            timeout(LIMIT, client).await.unwrap().unwrap();
        }
        queue.abort();
    }
}

#[tokio::test]
async fn a_killed_receiver_gets_no_message_twice_and_none_in_part() {
    let push = socket(Push);
    let mut pull = socket(Pull);
    let endpoint = pull.bind_to("tcp://127.0.0.1:0").await.unwrap().to_string();
    push.connect_to(&endpoint).await.unwrap();
    let sender = tokio::spawn({
        let push = push.clone();
        async move {
            for number in 0u32.. {
                let mut body = vec![number as u8; 20_000];
                body[..4].copy_from_slice(&number.to_be_bytes());
                if push.send(body).await.is_err() {
                    break;
                }
            }
        }
    });
    let mut last = None;
    for _ in 0..5 {
        for _ in 0..50 {
            let message = recv(&pull).await;
            let number = u32::from_be_bytes(*message.body().first_chunk().unwrap());
            assert!(last.is_none_or(|last| number > last), "{number} after {last:?}");
            assert_eq!(message.size_bytes(), 20_000);
            assert!(message.body()[4..].iter().all(|byte| *byte == number as u8));
            last = Some(number);
        }
        pull.close().await;
        pull = socket(Pull);
        pull.bind_to(&endpoint).await.unwrap();
    }
    sender.abort();
    assert!(push.stats().peers[0].connections >= 5, "{:?}", push.stats());
}

/// Takes requests of a REP whose handles work at the same time; fails if two requests are taken before a reply.
fn reply_alone(rep: &Socket, held: &AtomicU32, replies: u32, count: &AtomicU32) {
    while count.load(Ordering::SeqCst) < replies {
        match rep.try_recv() {
            Ok(Some(request)) => {
                let others = held.fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "a second request was taken before the reply to the first one");
                held.fetch_sub(1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                rep.try_send(request).unwrap();
            }
            Ok(None) | Err(_) => std::hint::spin_loop(),
        }
    }
}

#[tokio::test]
async fn receivers_of_a_rep_take_one_request_at_a_time() {
    const EACH: u32 = 1500;
    for _ in 0..20 {
        let [_, _, endpoint] = endpoints();
        let rep = socket(Rep);
        rep.bind_to(&endpoint).await.unwrap();
        let dealers = [socket(Dealer), socket(Dealer)];
        for (name, dealer) in ["a", "b"].iter().zip(&dealers) {
            dealer.connect_to(&endpoint).await.unwrap();
            for _ in 0..EACH {
                dealer.try_send(["", *name]).unwrap();
            }
        }
        let (held, count) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| reply_alone(&rep, &held, 2 * EACH, &count));
            }
        });
        for (name, dealer) in ["a", "b"].iter().zip(&dealers) {
            for _ in 0..EACH {
                assert_eq!(
                    dealer.try_recv().unwrap(),
                    Some(Message::from(["", *name])),
                    "a reply of another peer"
                );
            }
        }
    }
}
