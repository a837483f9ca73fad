//! The sides of the workloads.

use crate::{
    Kind, Result, Sockets,
    arguments::Arguments,
    failed,
    tally::{Next, Tally, message, now_ns, sender},
};
use std::{future::Future, io, sync::Arc, time::Duration};

/// Requests of each client that are outstanding.
const OUTSTANDING: u64 = 100;

pub(crate) async fn run<S: Sockets>(sockets: S, arguments: Arguments) -> Result<()> {
    let side = format!("{} {}", arguments.side, arguments.mode);
    match &*side {
        "bind push-pull" => pull(sockets, arguments).await,
        "connect push-pull" => {
            end_with_input();
            let senders = open_all(&sockets, Kind::Push, &arguments).await?;
            send(&sockets, &senders, arguments.bytes).await
        }
        "bind stalled" => {
            let push = bind(&sockets, Kind::Push, &arguments).await?;
            send(&sockets, &[push], arguments.bytes).await
        }
        "connect stalled" => receive_all(sockets, Kind::Pull, arguments).await,
        "alone inproc" => inproc(sockets, arguments).await,
        "bind req-rep" => echo(sockets, Kind::Rep, arguments).await,
        "bind router" | "bind idle" => echo(sockets, Kind::Router, arguments).await,
        "connect req-rep" => call(sockets, Kind::Req, 1, arguments).await,
        "connect router" => call(sockets, Kind::Dealer, OUTSTANDING, arguments).await,
        "bind pub-sub" => {
            let socket = bind(&sockets, Kind::Pub, &arguments).await?;
            // Subscribers connect in this time; a loop that sends would leave them none.
            tokio::time::sleep(Duration::from_secs(1)).await;
            send(&sockets, &[socket], arguments.bytes).await
        }
        "connect pub-sub" => receive_all(sockets, Kind::Sub, arguments).await,
        "connect idle" => idle(sockets, arguments).await,
        _ => Err(format!("there is no {side}")),
    }
}

/// Ends this process when its standard input does.
fn end_with_input() {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    });
}

async fn bind<S: Sockets>(sockets: &S, kind: Kind, arguments: &Arguments) -> Result<S::Socket> {
    let socket = sockets.open(kind).await?;
    println!("listening on {}", sockets.bind(&socket, &arguments.endpoint).await?);
    if arguments.mode != "push-pull" {
        end_with_input();
    }
    Ok(socket)
}

async fn open_all<S: Sockets>(sockets: &S, kind: Kind, arguments: &Arguments) -> Result<Vec<S::Socket>> {
    let mut all = Vec::new();
    for _ in 0..arguments.peers {
        let socket = sockets.open(kind).await?;
        sockets.connect(&socket, &arguments.endpoint).await?;
        all.push(socket);
    }
    Ok(all)
}

/// Starts a task; an error ends the process.
fn spawn(task: impl Future<Output = Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = task.await {
            eprintln!("{error}");
            std::process::exit(1);
        }
    });
}

async fn send<S: Sockets>(sockets: &S, all: &[S::Socket], bytes: usize) -> Result<()> {
    for number in 0.. {
        for (at, socket) in all.iter().enumerate() {
            sockets.send(socket, message(at as u32, number, bytes)).await?;
        }
    }
    Ok(())
}

async fn pull<S: Sockets>(sockets: S, arguments: Arguments) -> Result<()> {
    let pull = bind(&sockets, Kind::Pull, &arguments).await?;
    receive_measured(sockets, pull, &arguments).await
}

async fn receive_measured<S: Sockets>(sockets: S, pull: S::Socket, arguments: &Arguments) -> Result<()> {
    let tally = Arc::new(Tally::new());
    let (received, peers) = (tally.clone(), arguments.peers as usize);
    spawn(async move {
        let mut nexts: Vec<Next> = vec![None; peers];
        loop {
            let message = sockets.receive(&pull).await?;
            let body = sockets.body(&message);
            let at = sender(body) as usize % peers;
            received.receive(body, &mut nexts[at], false, None);
        }
    });
    tally.measure(arguments).await;
    Ok(())
}

/// Receives at all sockets but a stalled one.
async fn receive_all<S: Sockets>(sockets: S, kind: Kind, arguments: Arguments) -> Result<()> {
    let tally = Arc::new(Tally::new());
    let mut all = open_all(&sockets, kind, &arguments).await?;
    let stalled = if arguments.stalled { all.pop() } else { None };
    for socket in all {
        let (sockets, tally) = (sockets.clone(), tally.clone());
        spawn(async move {
            let mut next = None;
            loop {
                let message = sockets.receive(&socket).await?;
                tally.receive(sockets.body(&message), &mut next, kind == Kind::Pull, None);
            }
        });
    }
    tally.measure(&arguments).await;
    drop(stalled);
    Ok(())
}

async fn echo<S: Sockets>(sockets: S, kind: Kind, arguments: Arguments) -> Result<()> {
    let socket = bind(&sockets, kind, &arguments).await?;
    loop {
        sockets.echo(&socket).await?;
    }
}

/// Keeps requests of each client outstanding.
async fn call<S: Sockets>(sockets: S, kind: Kind, outstanding: u64, arguments: Arguments) -> Result<()> {
    let tally = Arc::new(Tally::new());
    for (at, socket) in open_all(&sockets, kind, &arguments).await?.into_iter().enumerate() {
        let (sockets, tally, bytes) = (sockets.clone(), tally.clone(), arguments.bytes);
        spawn(async move {
            let mut next = None;
            for number in 0.. {
                let start = (outstanding == 1).then(now_ns);
                if number >= outstanding && outstanding > 1 {
                    let reply = sockets.receive(&socket).await?;
                    tally.receive(sockets.body(&reply), &mut next, false, None);
                }
                sockets.send(&socket, message(at as u32, number, bytes)).await?;
                if let Some(start) = start {
                    let reply = sockets.receive(&socket).await?;
                    tally.receive(sockets.body(&reply), &mut next, false, Some(now_ns() - start));
                }
            }
            Ok(())
        });
    }
    tally.measure(&arguments).await;
    Ok(())
}

async fn idle<S: Sockets>(sockets: S, arguments: Arguments) -> Result<()> {
    let mut all = Vec::new();
    for at in 0..arguments.peers {
        let socket = sockets.open(Kind::Dealer).await?;
        sockets.connect(&socket, &arguments.endpoint).await?;
        sockets.send(&socket, message(at, 0, arguments.bytes)).await?;
        sockets.receive(&socket).await?;
        all.push(socket);
        if at == 0 {
            println!("begin");
            let _ = io::stdin().read_line(&mut String::new());
        }
    }
    println!("{{\"messages\":{}}}", all.len());
    let _ = io::stdin().read_line(&mut String::new());
    Ok(())
}

async fn inproc<S: Sockets>(sockets: S, arguments: Arguments) -> Result<()> {
    let pull = sockets.open(Kind::Pull).await?;
    sockets.bind(&pull, "inproc://bench").await?;
    let (other, bytes) = (sockets.clone(), arguments.bytes);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed);
        let sent = runtime.and_then(|runtime| {
            runtime.block_on(async {
                let push = other.open(Kind::Push).await?;
                other.connect(&push, "inproc://bench").await?;
                send(&other, &[push], bytes).await
            })
        });
        if let Err(error) = sent {
            eprintln!("{error}");
            std::process::exit(1);
        }
    });
    receive_measured(sockets, pull, &arguments).await
}
