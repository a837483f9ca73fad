//! Peers that send cheap frames without a pause: other connections are still served, and no memory stays
//! allocated. The server has one thread, and every flood comes from a thread of its own that keeps the socket
//! full: a server that reads as long as bytes are available would never serve the other connection.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use std::{
    io::{BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use support::{raw::*, *};
use switchboard::{Code, Running, Server};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(60);
/// Batches on their way: the server always has some to read, and little is left when the flood ends.
const AHEAD: usize = 4;
/// The call number of the PING after each batch.
const MARK: u32 = 0xFFFF_0000;

/// A connection that repeats its frames until it is dropped.
struct Flood {
    socket: TcpStream,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    reader: Option<JoinHandle<Vec<u8>>>,
    /// Batches that the server has read.
    read: watch::Receiver<usize>,
}

impl Flood {
    /// Sends `before` once, and then `again` over and over.
    fn start(running: &Running, before: &[Vec<u8>], again: &[Vec<u8>]) -> Flood {
        let mut socket = TcpStream::connect(running.url().replace("tcp://", "")).unwrap();
        let names = (0u16..).zip(PROBE.methods);
        let names = names.flat_map(|(number, info)| method(number, &format!("test.Probe/{}", info.name)));
        socket.write_all(&[PREFACE.to_vec(), names.collect(), before.concat()].concat()).unwrap();
        // Some 100 KiB at once: more than one read.
        let count = (100 << 10) / again.iter().map(Vec::len).sum::<usize>();
        let batch = [again.concat().repeat(count), frame(PING, 0, 0, MARK, &[])].concat();
        let stop = Arc::new(AtomicBool::new(false));
        let (reading, read) = watch::channel(0);
        let (mark, marks) = mpsc::sync_channel(AHEAD);
        let writer = {
            let (mut socket, stop) = (socket.try_clone().unwrap(), stop.clone());
            std::thread::spawn(move || {
                // A thread of its own: a server busy with the flood could not fail the test.
                let began = Instant::now();
                while !stop.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                    if mark.send(()).is_err() || socket.write_all(&batch).is_err() {
                        return;
                    }
                }
                socket.shutdown(Shutdown::Write).unwrap();
            })
        };
        let reader = {
            let socket = BufReader::new(socket.try_clone().unwrap());
            std::thread::spawn(move || {
                kinds(socket, || {
                    let _ = marks.recv();
                    reading.send_modify(|read| *read += 1);
                })
            })
        };
        Flood { socket, stop, writer: Some(writer), reader: Some(reader), read }
    }

    /// Ends the flood; returns the kinds of the received frames.
    fn end(mut self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.take().unwrap().join().unwrap();
        self.reader.take().unwrap().join().unwrap()
    }
}

/// Kinds of the frames that come after preface and SETTINGS, a thousand at most, without the answers to marks.
fn kinds(mut socket: impl Read, mut marked: impl FnMut()) -> Vec<u8> {
    let (mut kinds, mut body) = (Vec::new(), Vec::new());
    let mut header = [0; 12];
    if socket.read_exact(&mut header[..8]).is_err() {
        return kinds;
    }
    while socket.read_exact(&mut header).is_ok() {
        body.resize(u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize, 0);
        if socket.read_exact(&mut body).is_err() {
            break;
        }
        let id = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if (header[4], id) == (PING, MARK) {
            marked();
        } else if header[4] != 0 && kinds.len() < 1000 {
            kinds.push(header[4]);
        }
    }
    kinds
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Calls on another connection during this flood; returns the frames that the flood received.
async fn flooded(before: &[Vec<u8>], again: &[Vec<u8>]) -> Vec<u8> {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let running = Server::new().add(probe).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let flood = Flood::start(&running, before, again);
    let mut neighbour = Raw::open(&running).await;
    soon(flood.read.clone().wait_for(|read| *read >= 2)).await.unwrap();
    for id in 0..5 {
        neighbour.echo(id).await;
    }
    assert!(!flood.writer.as_ref().unwrap().is_finished(), "the neighbour was served after the flood");
    // The server reads on while the thread waits for the peer's end.
    let ended = soon(tokio::task::spawn_blocking(|| flood.end())).await.unwrap();
    soon(seen.until(|seen| seen.hanging() == 0)).await;
    soon(async {
        while running.stats().connections > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(running.stats().calls_in_flight, 0);
    neighbour.echo(1000).await;
    ended
}

#[tokio::test]
async fn calls_that_are_begun_and_cancelled() {
    let call = [open_call(WHOLE, 2, 1, &message(&"")), frame(CANCEL, 0, 0, 1, &[])];
    let got = flooded(&[], &call).await;
    // Nothing is answered, neither a call that was cancelled nor a cancel.
    assert_eq!(got, Vec::<u8>::new());
}

#[tokio::test]
async fn streams_that_are_begun_and_cancelled() {
    let call =
        [open_call(MORE, 7, 1, &[]), frame(ITEM, 0, 0, 1, &message(&"a")), frame(CANCEL, 0, 0, 1, &[])];
    let got = flooded(&[], &call).await;
    assert!(got.iter().all(|kind| [ITEM, CREDIT].contains(kind)), "{got:?}");
}

#[tokio::test]
async fn credit_without_end() {
    // To a stream that waits, to one that has much to say, and to calls that are not there.
    let before = [open_call(MORE, 7, 1, &[]), open_call(WHOLE, 5, 2, &message(&(u32::MAX, 1000usize)))];
    let credit = |id| frame(CREDIT, 0, 0, id, &[0xFF; 4]);
    let got = flooded(&before, &[credit(1), credit(2), credit(3)]).await;
    assert!(got.contains(&ITEM), "{got:?}");
}

#[tokio::test]
async fn cancels_ends_and_items_of_calls_that_are_not_there() {
    let stray = [
        frame(CANCEL, 0, 0, 5, &[]),
        frame(END, 1, 0, 6, &[]),
        frame(ITEM, 0, 0, 7, b"x"),
        frame(200, 0xFF, 7, 8, b"of a later version"),
    ];
    let got = flooded(&[], &stray).await;
    assert_eq!(got, Vec::<u8>::new());
}

#[tokio::test]
async fn calls_of_a_method_that_is_not_there() {
    let got = flooded(&[], &[open_call(WHOLE, 900, 1, &[])]).await;
    assert!(!got.is_empty() && got.iter().all(|kind| *kind == END), "{got:?}");
}

#[tokio::test]
async fn methods_that_are_named_anew() {
    // Half a kilobyte each: only the last name of a number is kept.
    let names = (0..8).map(|number| method(20 + number, &"x".repeat(500))).collect::<Vec<_>>();
    let got = flooded(&[], &names).await;
    assert_eq!(got, Vec::<u8>::new());
}

#[tokio::test]
async fn pings_without_end() {
    let got = flooded(&[], &[frame(PING, 0, 0, 7, &[])]).await;
    assert!(!got.is_empty() && got.iter().all(|kind| *kind == PING), "{got:?}");
}

#[tokio::test]
async fn call_after_the_flood_is_a_call_like_any_other() {
    // The number of the last cancelled call, used again by the same connection.
    let running = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut raw = Raw::open(&running).await;
    for _ in 0..100 {
        let call = [open_call(WHOLE, 2, 1, &message(&"")), frame(CANCEL, 0, 0, 1, &[])].concat().repeat(100);
        raw.send(&call).await;
        raw.echo(1).await;
    }
    raw.send(&open_call(WHOLE, 1, 1, &message(&"gone"))).await;
    assert_eq!(raw.expect().await.status(), (Code::NotFound, "gone".into()));
}
