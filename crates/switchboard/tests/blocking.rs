//! Calls from threads without async.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{sync::mpsc, thread, time::Duration};
use support::*;
use switchboard::{Code, blocking};

/// A probe on a thread of its own, and where it is; it serves until the sender is dropped.
fn server() -> (String, tokio::sync::oneshot::Sender<()>) {
    let (send, receive) = mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (running, _channel, _) = served("tcp://127.0.0.1:0").await;
            send.send(running.url()).unwrap();
            let _ = stopped.await;
        });
    });
    (receive.recv().unwrap(), stop)
}

#[test]
fn every_kind_of_call_from_many_threads() {
    let (url, _stop) = server();
    let channel = blocking::connect(&url).unwrap();
    thread::scope(|scope| {
        for caller in 0..8u8 {
            let channel = &channel;
            scope.spawn(move || {
                for size in 0..100 {
                    let sent = vec![caller; size];
                    let reply = blocking::run(call::<_, Vec<u8>>(channel, &ECHO, &sent)).unwrap();
                    assert_eq!(*reply, sent);
                }
                let mut stream = blocking::run(count(channel, 20, 1000)).unwrap();
                for _ in 0..20 {
                    assert_eq!(blocking::run(stream.next()).unwrap().unwrap().len(), 1000);
                }
                assert_eq!(blocking::run(stream.next()).unwrap(), None);
                let upload = blocking::run(sum(channel)).unwrap();
                for n in 0..100 {
                    blocking::run(upload.send(n)).unwrap();
                }
                assert_eq!(*blocking::run(upload.finish()).unwrap(), 4950);
            });
        }
    });
}

#[test]
fn failures_and_deadlines_come_back() {
    let (url, _stop) = server();
    let channel = blocking::connect(&url).unwrap();
    let status = blocking::run(call::<_, ()>(&channel, &FAIL, &"no such post")).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such post"));
    let hang = call::<_, ()>(&channel, &HANG, &"").timeout(Duration::from_millis(30));
    assert_eq!(blocking::run(hang).unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(blocking::connect("tcp://127.0.0.1").unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn async_code_gets_an_error_instead_of_a_deadlock() {
    let status = blocking::connect("tcp://127.0.0.1:1").unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("await the call"), "{status}");
    // A thread of its own is where it may be called.
    let (url, _stop) = server();
    let echoed = thread::spawn(move || {
        let channel = blocking::connect(&url)?;
        blocking::run(call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]))
    });
    assert_eq!(*echoed.join().unwrap().unwrap(), [1]);
}
