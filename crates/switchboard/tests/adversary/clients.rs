//! Hostile servers of every client: calls end in time and with a clear status, no reply reaches another call, and the
//! client's memory stays bounded.
//!
//! Between a client and an honest server is a relay that plays one trick after the other on the bytes of the server.

use super::{
    counting,
    peer::PATIENCE,
    support::raw::soon,
    target::{SHOW, Served, message},
    tricks::{self, Payload, Trick},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard::{Channel, Codec};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

macro_rules! clients {
    ($($name:ident $url:literal;)*) => {
        $(#[tokio::test]
        async fn $name() {
            tokio::task::LocalSet::new().run_until(deceived($url)).await;
        })*
    };
}

clients! {
    client_of_baidu_std "tcp://ADDRESS?wire=baidu_std";
    client_of_connect "tcp://ADDRESS?wire=connect";
    client_of_connect_on_http1 "tcp://ADDRESS?wire=connect&http=1";
    client_of_erpc "tcp://ADDRESS?wire=erpc";
    client_of_erpc_in_json "tcp://ADDRESS?wire=erpc&framing=json&codec=json";
    client_of_erpc_in_protobuf "tcp://ADDRESS?wire=erpc&framing=proto&filter=gzip";
    client_of_grpc "tcp://ADDRESS?wire=grpc";
    client_of_grpc_web "tcp://ADDRESS?wire=grpc-web&http=1";
    client_of_hulu "tcp://ADDRESS?wire=hulu&index=test.Target/Show:0";
    client_of_json_rpc_by_post "tcp://ADDRESS?wire=jsonrpc";
    client_of_json_rpc_in_websockets "ws://ADDRESS?wire=jsonrpc";
    client_of_kiss "tcp://ADDRESS?wire=kiss&function=test.Target/Show:1";
    client_of_native "tcp://ADDRESS";
    client_of_native_in_websockets "ws://ADDRESS";
    client_of_rpcx "tcp://ADDRESS?wire=rpcx";
    client_of_rpcx_in_websockets "ws://ADDRESS?wire=rpcx";
    client_of_rpcx_on_http "tcp://ADDRESS?wire=rpcx&network=http";
    client_of_sofa "tcp://ADDRESS?wire=sofa";
    client_of_thrift "tcp://ADDRESS?wire=thrift";
    client_of_thrift_compact "tcp://ADDRESS?wire=thrift&protocol=compact";
    client_of_thrift_header "tcp://ADDRESS?wire=thrift&protocol=header";
    client_of_thrift_unframed "tcp://ADDRESS?wire=thrift&framed=false";
}

/// Calls at a time, and how often.
const CALLERS: u64 = 4;
const ROUNDS: usize = 2;
/// Heap that a server may make the thread of its client use at once, its relay included.
const PEAK_MAX: i64 = 48 << 20;
/// Heap that may be left when a channel is gone.
const LEFT_MAX: i64 = 4 << 20;

/// Replies of HTTP/1.1 have no number: a client accepts a second reply of a server as that of its next
/// request.
fn has_ids(url: &str) -> bool {
    !url.contains("http=1") && !url.ends_with("tcp://ADDRESS?wire=jsonrpc")
}

/// A client under all tricks.
async fn deceived(url: &'static str) {
    let served = Served::start(false).await;
    let mut faults = Vec::new();
    let only = std::env::var("ADVERSARY_ONLY").unwrap_or_default();
    for trick in tricks::ALL.iter().filter(|trick| trick.name.contains(&only)) {
        counting::reset_peak();
        let before = counting::live();
        if let Err(fault) = played(url, trick, &served).await {
            println!("{url}: {}: FAILED: {fault}", trick.name);
            faults.push(format!("{}: {fault}", trick.name));
        }
        let (peak, left) = (counting::peak() - before, counting::live() - before);
        if peak > PEAK_MAX || left > LEFT_MAX {
            faults.push(format!("{}: {peak} bytes of the heap at most, {left} are left", trick.name));
        }
    }
    assert!(faults.is_empty(), "{url}:\n{}", faults.join("\n"));
}

/// One trick, and calls without it afterwards.
async fn played(url: &'static str, trick: &'static Trick, served: &Served) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // A channel needs a server to begin with.
    let (honest, now) = watch::channel(true);
    let relay = tokio::task::spawn_local(relay(listener, served.address.to_string(), trick, now));
    let builder = Channel::builder(&url.replace("ADDRESS", &address)).connections(1);
    let builder = builder.backoff_max(Duration::from_millis(20)).connect_timeout(Duration::from_secs(20));
    let channel = soon(builder.connect()).await.map_err(|error| format!("no channel: {error}"))?;
    honest.send_replace(false);
    if trick.harmless {
        // The connection from before has ended.
        recovered(&channel).await?;
    }
    let checked = match trick.payload {
        Payload::Changed => false,
        Payload::Kept => true,
        Payload::Repeated => has_ids(url),
    };
    let mut outcome = Ok(());
    for _ in 0..ROUNDS {
        let mut calls = JoinSet::new();
        for _ in 0..CALLERS {
            calls.spawn(call(channel.clone(), Duration::from_millis(trick.deadline), checked));
        }
        while let Some(ended) = calls.join_next().await {
            match ended.map_err(|error| format!("a call panicked: {error}"))? {
                Ok(true) => {}
                Ok(false) if trick.harmless => outcome = Err("a call failed".to_owned()),
                Ok(false) => {}
                Err(fault) => outcome = Err(fault),
            }
        }
    }
    // From here on the relay is honest, and the channel finds that out by itself.
    honest.send_replace(true);
    outcome = outcome.and(recovered(&channel).await);
    drop(channel);
    relay.abort();
    let _ = relay.await;
    outcome
}

/// Calls until one succeeds.
async fn recovered(channel: &Channel) -> Result<(), String> {
    let calls = async {
        while !call(channel.clone(), Duration::from_secs(5), true).await? {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    let recovered = tokio::time::timeout(PATIENCE, calls).await;
    recovered.unwrap_or_else(|_| Err("no call succeeds when the server is honest".to_owned()))
}

/// Returns whether a call succeeded. An error is a violation: another call's reply, no end in time, a status without
/// a reason.
async fn call(channel: Channel, deadline: Duration, checked: bool) -> Result<bool, String> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let (codec, number) = (channel.codec(Codec::Proto), NEXT.fetch_add(1, Ordering::Relaxed));
    let sent = message(number, codec);
    let call = channel.unary(&SHOW, codec, Ok(sent.clone()), |_, bytes| Ok(bytes)).timeout(deadline);
    let ended = tokio::time::timeout(deadline + PATIENCE, call).await;
    match ended.map_err(|_| format!("a call with a deadline of {deadline:?} did not end"))? {
        Ok(reply) if checked && *reply != sent => Err(format!("the reply to {sent:?} is {:?}", *reply)),
        Ok(_) => Ok(true),
        // A status that was changed may have lost its text.
        Err(status) if checked && status.message().is_empty() => {
            Err(format!("{:?} without a reason", status.code()))
        }
        Err(_) => Ok(false),
    }
}

/// Plays a trick on each connection until it is to be honest.
async fn relay(listener: TcpListener, server: String, trick: &'static Trick, honest: watch::Receiver<bool>) {
    let mut links = JoinSet::new();
    let connections = Arc::new(AtomicU64::new(0));
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let mut honest = honest.clone();
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let server = server.clone();
        links.spawn_local(async move {
            let Ok(far) = TcpStream::connect(server).await else { return };
            // What was begun in one way does not go on in the other.
            let was = *honest.borrow();
            let play = async {
                if was { tricks::forward(near, far).await } else { (trick.play)(near, far, number).await }
            };
            tokio::select! {
                () = play => {}
                _ = honest.wait_for(|honest| *honest != was) => {}
            }
        });
    }
}
