//! Layers around the calls of a channel, on every wire and for every kind of call, and mirroring.

use super::*;
use bytes::Bytes;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};
use switchboard::{Call, Code, Layer, Next, Reply, client::Mirror, layer, layer::BoxFuture};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what passes, and adds metadata.
struct Writer(&'static str, Log);

impl Layer for Writer {
    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            let (name, log) = (self.0, &self.1);
            let method = call.cx().method().name;
            log.lock().unwrap().push(format!("{name} in {method}"));
            call.cx_mut().metadata_mut().insert(&format!("x-head-{name}"), "was here")?;
            let reply = next.call(call).await;
            let how = reply.as_ref().map_or_else(|status| status.code().name(), |_| "ok");
            log.lock().unwrap().push(format!("{name} out {how}"));
            reply
        })
    }
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn layers_of_channels_run_in_their_order_on_every_wire() {
    let (running, _) = start(Server::new()).await;
    for mut client in Client::each(&running).await {
        let log = Log::default();
        let wire = client.wire;
        // In the text wire of WebSockets calls have no metadata of their own.
        if wire.starts_with("ws") {
            continue;
        }
        client.channel =
            client.channel.layer(Writer("outer", log.clone())).layer(Writer("inner", log.clone()));
        let reply = soon(client.call::<Vec<u8>>(&ECHO, &[1u8, 2].to_vec())).await.unwrap();
        assert_eq!(*reply, [1, 2], "{wire}");
        // The handler answers with what it got, where the wire carries it.
        if !wire.ends_with("jsonrpc") {
            assert_eq!(reply.meta().text("x-head-inner"), Some("was here"), "{wire}");
        }
        assert_eq!(take(&log), ["outer in Echo", "inner in Echo", "inner out ok", "outer out ok"], "{wire}");
        let status = failed(soon(client.call::<()>(&FAIL, &"no")).await);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no"), "{wire}");
        assert_eq!(take(&log)[2..], ["inner out not_found", "outer out not_found"], "{wire}");
    }
}

#[tokio::test]
async fn layers_of_channels_see_every_kind_of_call_and_its_messages() {
    let (running, seen) = start(Server::new()).await;
    let log = Log::default();
    let bytes = Arc::new(AtomicUsize::new(0));
    let counted = bytes.clone();
    let counting = layer::from_fn("counts", move |mut call, next| {
        let counted = counted.clone();
        Box::pin(async move {
            let (up, down) = (counted.clone(), counted);
            call.each_message(move |message| {
                up.fetch_add(1, Ordering::Relaxed);
                Ok(message)
            })?;
            next.call(call).await?.each_message(move |message| {
                down.fetch_add(1000, Ordering::Relaxed);
                Ok(message)
            })
        })
    });
    let plain = Channel::connect(&running.url()).await.unwrap();
    let channel = plain.layer(Writer("one", log.clone())).layer(counting);
    assert!(format!("{channel:?}").ends_with("behind layers)"));

    channel.oneway(&NOTE, Codec::Postcard, serde::encode(&7u64, Codec::Postcard)).await.unwrap();
    seen.until(|seen| seen.notes.load(Ordering::SeqCst) == 7).await;
    assert_eq!(bytes.swap(0, Ordering::Relaxed), 1001);

    let mut counted = count(&channel, 3, 10).await.unwrap();
    let mut replies = 0;
    while counted.next().await.unwrap().is_some() {
        replies += 1;
    }
    assert_eq!((replies, bytes.swap(0, Ordering::Relaxed)), (3, 3001));

    let upload = tally(&channel).await.unwrap();
    for _ in 0..3 {
        upload.send(3).await.unwrap();
    }
    assert_eq!(upload.finish().await.unwrap().0, 3);
    assert_eq!(bytes.swap(0, Ordering::Relaxed), 1003);

    let (up, mut down) = chat(&channel).await.unwrap();
    for text in ["a", "b", "c"] {
        up.send(text.to_owned()).await.unwrap();
        assert_eq!(down.next().await.unwrap().unwrap(), text.to_uppercase());
    }
    up.finish();
    while down.next().await.unwrap().is_some() {}
    assert_eq!(bytes.swap(0, Ordering::Relaxed), 3003);
    let methods =
        ["Note", "Count", "Tally", "Chat"].map(|method| [format!("one in {method}"), "one out ok".into()]);
    assert_eq!(take(&log), methods.concat());

    // Who drops a call ends it there too, and its time limit holds.
    let call = call::<_, ()>(&channel, &HANG, &1u64).timeout(std::time::Duration::from_millis(50));
    assert_eq!(failed(call.await).code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 0).await;
}

#[tokio::test]
async fn layers_of_channels_try_again_refuse_and_answer() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let flaky = layer::from_fn("flaky", move |call, next| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            match first {
                true => Err(Status::unavailable("not yet")),
                false => next.call(call).await,
            }
        })
    });
    let (running, _) = start(Server::new().layer(flaky)).await;
    let again = layer::from_fn("again", |call, next| {
        Box::pin(async move {
            let Some(second) = call.try_clone() else { return next.call(call).await };
            match next.call(call).await {
                Err(status) if status.code() == Code::Unavailable => next.call(second).await,
                answered => answered,
            }
        })
    });
    let refuse = layer::from_fn("refuses", |call, next| {
        Box::pin(async move {
            match call.cx().metadata().text("x-refuse") {
                Some(why) => Err(Status::permission_denied(why)),
                None => next.call(call).await,
            }
        })
    });
    let channel = Channel::connect(&running.url()).await.unwrap().layer(again).layer(refuse);
    let echo = |channel: &Channel| {
        channel.unary(&MIRROR, Codec::Postcard, Ok(Bytes::from_static(b"ab")), |_, reply: Bytes| Ok(reply))
    };
    assert_eq!(*echo(&channel).await.unwrap(), "ab");
    assert_eq!(tries.load(Ordering::Relaxed), 2);
    let status = echo(&channel).meta("x-refuse", "not here").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "not here"));
    assert_eq!(tries.load(Ordering::Relaxed), 2, "it was not sent");
    // In front of a service of the same process too.
    let local =
        Channel::local(Probe::default()).layer(layer::from_fn("counts", |call, next| next.call(call)));
    assert_eq!(*echo(&local).await.unwrap(), "ab");
}

/// A server that says what reaches it.
async fn shadow() -> (Running, Log) {
    let log = Log::default();
    let seen = log.clone();
    let noting = layer::from_fn("notes", move |call, next| {
        let mark = call.cx().metadata().text("switchboard-mirrored").unwrap_or("no");
        seen.lock().unwrap().push(format!(
            "{} {mark} {:?}",
            call.cx().method().name,
            call.cx().metadata().text("x-a")
        ));
        next.call(call)
    });
    (start(Server::new().layer(noting)).await.0, log)
}

async fn until(what: impl Fn() -> bool) {
    soon(async {
        while !what() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_share_of_the_calls_is_mirrored_without_effect_on_them() {
    let (shadow, log) = shadow().await;
    let mirror = Mirror::new(Channel::connect(&shadow.url()).await.unwrap())
        .methods(["test.Probe/Fa*", "test.Probe/Echo", "test.Probe/Count"])
        .share(0.25);
    let (running, _) = start(Server::new().layer(mirror.clone())).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    for _ in 0..8 {
        let echo = client.call::<Vec<u8>>(&ECHO, &[1u8, 2].to_vec()).meta("x-a", "b");
        assert_eq!(*echo.await.unwrap(), [1, 2]);
        soon(mirror_method(&client.channel)).await;
    }
    until(|| log.lock().unwrap().len() == 2).await;
    assert_eq!(take(&log), ["Echo 1 Some(\"b\")", "Echo 1 Some(\"b\")"]);
    for _ in 0..4 {
        failed(client.call::<()>(&FAIL, &"no").await);
    }
    until(|| mirror.failed() == 1).await;
    assert_eq!((mirror.sent(), mirror.left_out(), take(&log).len()), (3, 0, 1));
    // Streams are not mirrored, and are not affected by the mirror.
    for _ in 0..4 {
        let mut counted = count(&client.channel, 1, 1).await.unwrap();
        while counted.next().await.unwrap().is_some() {}
    }
    assert_eq!((mirror.sent(), mirror.left_out()), (3, 1));
}

async fn mirror_method(channel: &Channel) {
    super::mirror(channel, vec![1; 10]).await.unwrap();
}

#[tokio::test]
async fn a_mirror_that_hangs_or_is_down_delays_no_call() {
    let (running_shadow, seen) = start(Server::new()).await;
    let channel = Channel::builder(&running_shadow.url()).lazy().unwrap();
    // The mirror hangs for every call.
    let hanging = channel.layer(layer::from_fn("hangs", |_, _| Box::pin(std::future::pending())));
    let mirror = Mirror::new(hanging).in_flight_max(2).bytes_max(100);
    let down = Mirror::new(Channel::builder("tcp://127.0.0.1:1").lazy().unwrap());
    let (running, _) = start(Server::new().layer(mirror.clone()).layer(down.clone())).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    for _ in 0..5 {
        assert_eq!(client.echo().await.unwrap(), [1, 2]);
    }
    assert_eq!((mirror.sent(), mirror.left_out()), (2, 3));
    super::mirror(&client.channel, vec![1; 200]).await.unwrap();
    assert_eq!((mirror.sent(), mirror.left_out()), (2, 4));
    until(|| down.failed() == 6).await;
    assert_eq!((down.sent(), down.left_out(), seen.hanging()), (6, 0, 0));
}

#[test]
fn unknown_options_name_the_nearest_one() {
    for (option, hint) in [
        ("balanc=p2c", "did you mean balance?"),
        ("timout=1s", "did you mean timeout?"),
        ("mesage_bytes_max=1", "did you mean message_bytes_max?"),
        ("zebra=1", "options are backoff_max, balance, "),
    ] {
        let status = Channel::builder(&format!("tcp://127.0.0.1:1?{option}")).lazy().err().unwrap();
        assert!(status.message().contains("is not a channel option or limit"), "{status}");
        assert!(status.message().contains(hint), "{status}");
    }
}

#[tokio::test]
async fn a_capped_deadline_is_named_on_every_wire() {
    let server = Server::new().deadline_max(std::time::Duration::from_millis(40));
    let (running, _) = start(server).await;
    for client in Client::each(&running).await {
        let status = failed(soon(client.call::<()>(&HANG, &"")).await);
        assert_eq!(status.code(), switchboard::Code::DeadlineExceeded, "{}: {status}", client.wire);
        let text = "the deadline of 40 ms has passed on the server";
        assert!(status.message().contains(text), "{}: {status}", client.wire);
    }
}
