//! Measures the sockets, with each side in a process of its own:
//!
//! ```text
//! throughput pull tcp://127.0.0.1:5557 64 5000000        first, then
//! throughput push tcp://127.0.0.1:5557 64 5000000
//! throughput rep  tcp://127.0.0.1:5558 100 100000        first, then req
//! throughput sub  tcp://127.0.0.1:5559 256 100000 64     64 subscribers, first, then pub with the same arguments
//! throughput router tcp://127.0.0.1:5560 64 1000000 8    first, then dealer: 8 clients with 100 outstanding each
//! throughput inproc - 64 10000000
//! ```
//!
//! Without arguments it runs the last one with fewer messages.
//!
//! The peers of libzmq are `local_thr`, `remote_thr`, `local_lat` and `remote_lat`, or programs like them.

use bytes::Bytes;
use std::time::{Duration, Instant};
use switchboard_socket::{Dealer, Pull, Push, Rep, Req, Result, Router, Sub, Xpub};

struct Run {
    endpoint: String,
    bytes: usize,
    count: u64,
    peers: u64,
}

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        arguments = ["inproc", "-", "64", "100000"].map(str::to_owned).into();
    }
    let [role, endpoint, bytes, count, rest @ ..] = &arguments[..] else {
        eprintln!("usage: throughput ROLE ENDPOINT BYTES COUNT [PEERS]");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse().unwrap_or(1);
    let run = Run {
        endpoint: endpoint.clone(),
        bytes: number(bytes) as usize,
        count: number(count),
        peers: rest.first().map_or(1, |peers| number(peers)),
    };
    let role = role.clone();
    switchboard_core::runtime::Runtime::new().workers(1).run(async move {
        match &*role {
            "pull" => pull(&run).await,
            "push" => push(&run).await,
            "rep" => rep(&run).await,
            "req" => req(&run).await,
            "sub" => sub(&run).await,
            "pub" => publish(&run).await,
            "router" => router(&run).await,
            "dealer" => dealer(&run).await,
            "inproc" => inproc(&run).await,
            _ => {
                eprintln!("unknown role {role}");
                Ok(())
            }
        }
    })
}

fn report(name: &str, count: u64, time: Duration) {
    println!("{name}: {count} messages in {time:.2?}, {:.0} messages/s", count as f64 / time.as_secs_f64());
}

async fn pull(run: &Run) -> Result<()> {
    let pull = Pull::bind(&run.endpoint).await?;
    receive(&pull, run).await
}

async fn receive(pull: &Pull, run: &Run) -> Result<()> {
    pull.recv().await?;
    let start = Instant::now();
    for _ in 1..run.count {
        let message = pull.recv().await?;
        assert_eq!(message.size_bytes(), run.bytes);
    }
    report("pull", run.count, start.elapsed());
    Ok(())
}

async fn push(run: &Run) -> Result<()> {
    let push = Push::connect(&run.endpoint).await?;
    let body = vec![1; run.bytes];
    for _ in 0..run.count {
        // A new message each time, as an application makes it.
        push.send(Bytes::copy_from_slice(&body)).await?;
    }
    push.close().await;
    Ok(())
}

async fn rep(run: &Run) -> Result<()> {
    let rep = Rep::bind(&run.endpoint).await?;
    for _ in 0..run.count {
        let message = rep.recv().await?;
        rep.send(message).await?;
    }
    rep.close().await;
    Ok(())
}

async fn req(run: &Run) -> Result<()> {
    let req = Req::connect(&run.endpoint).await?;
    let body = Bytes::from(vec![1; run.bytes]);
    let mut times = Vec::new();
    let start = Instant::now();
    for _ in 0..run.count {
        let sent = Instant::now();
        req.send(body.clone()).await?;
        req.recv().await?;
        times.push(sent.elapsed());
    }
    report("req", run.count, start.elapsed());
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    println!("p50 {:?}, p99 {:?}, p99.9 {:?}", at(0.5), at(0.99), at(0.999));
    Ok(())
}

async fn sub(run: &Run) -> Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..run.peers {
        let sub = Sub::connect(&run.endpoint).await?;
        sub.subscribe("")?;
        let count = run.count;
        tasks.push(tokio::spawn(async move {
            for _ in 0..count {
                sub.recv().await?;
            }
            Ok(())
        }));
    }
    let start = Instant::now();
    for task in tasks {
        let received: Result<()> = task.await.unwrap_or(Ok(()));
        received?;
    }
    report("sub", run.count * run.peers, start.elapsed());
    Ok(())
}

async fn publish(run: &Run) -> Result<()> {
    let mut options = switchboard_socket::SocketOptions::default();
    options.queues.when_full = switchboard_socket::options::QueueFullPolicy::Wait;
    options.subscriptions.verbose = true;
    let xpub = Xpub::with_options(options)?;
    xpub.bind_to(&run.endpoint).await?;
    for _ in 0..run.peers {
        xpub.recv().await?;
    }
    let body = vec![1; run.bytes];
    let start = Instant::now();
    for _ in 0..run.count {
        xpub.send(Bytes::copy_from_slice(&body)).await?;
    }
    xpub.close().await;
    report("pub", run.count * run.peers, start.elapsed());
    Ok(())
}

async fn router(run: &Run) -> Result<()> {
    let router = Router::bind(&run.endpoint).await?;
    for _ in 0..run.count {
        let message = router.recv().await?;
        router.send(message).await?;
    }
    router.close().await;
    Ok(())
}

async fn dealer(run: &Run) -> Result<()> {
    const OUTSTANDING: u64 = 100;
    let count = run.count / run.peers;
    let mut tasks = Vec::new();
    let start = Instant::now();
    for _ in 0..run.peers {
        let dealer = Dealer::connect(&run.endpoint).await?;
        let body = Bytes::from(vec![1; run.bytes]);
        tasks.push(tokio::spawn(async move {
            for number in 0..count + OUTSTANDING {
                if number >= OUTSTANDING {
                    dealer.recv().await?;
                }
                if number < count {
                    dealer.send(body.clone()).await?;
                }
            }
            Ok(())
        }));
    }
    for task in tasks {
        let done: Result<()> = task.await.unwrap_or(Ok(()));
        done?;
    }
    report("dealer", count * run.peers, start.elapsed());
    Ok(())
}

async fn inproc(run: &Run) -> Result<()> {
    let pull = Pull::bind("inproc://throughput").await?;
    let sender = {
        let (count, bytes) = (run.count, run.bytes);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let sent: Result<()> = runtime.map_or(Ok(()), |runtime| {
                runtime.block_on(async {
                    let push = Push::connect("inproc://throughput").await?;
                    let body = vec![1; bytes];
                    for _ in 0..count {
                        push.send(Bytes::copy_from_slice(&body)).await?;
                    }
                    push.close().await;
                    Ok(())
                })
            });
            sent
        })
    };
    receive(&pull, run).await?;
    sender.join().unwrap_or(Ok(()))
}
