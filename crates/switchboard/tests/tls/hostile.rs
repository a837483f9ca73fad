//! Peers that break TLS, are slow, or fall silent: each is closed, without effect on others.

use crate::{
    foreign::{Foreign, beside, read_all, socket},
    listeners::listen,
    support::{certificates::*, raw::soon, *},
};
use std::{
    io::{Read, Write},
    net::Shutdown,
};
use switchboard::{Channel, Limit, Running, Server};

async fn still_serves(running: &Running, authority: &Authority) {
    let channel = Channel::builder(&running.url()).ca(authority.ca()).connections(1).connect().await.unwrap();
    let reply: Vec<u8> = soon(ask(&channel, &ECHO, &vec![1u8])).await.unwrap();
    assert_eq!(reply, [1]);
}

/// The first flight of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let mut bytes = Vec::new();
    Foreign::new(&authority.ca()).session().write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn handshake_byte_by_byte_works() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    /// Hands over one byte at a time, each in a packet of its own.
    struct Slowly(std::net::TcpStream);
    impl Write for Slowly {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(&bytes[..bytes.len().min(1)])
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl Read for Slowly {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = into.len().min(1);
            self.0.read(&mut into[..most])
        }
    }
    let session = Foreign::new(&authority.ca()).session();
    let mut stream = rustls::StreamOwned::new(session, Slowly(socket(&running)));
    let first = beside(move || {
        stream.write_all(b"\xF5SWB\x01\0\0\0").unwrap();
        let mut first = [0; 4];
        stream.read_exact(&mut first).unwrap();
        first
    });
    assert_eq!(&first.await, b"\xF5SWB");
}

#[tokio::test]
async fn garbage_after_the_first_bytes_is_closed_with_an_alert() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let mut cut = hello(&authority);
    cut.truncate(cut.len() / 2);
    cut.extend([0xff; 2000]);
    let fatal_alert = |answer: &[u8]| answer.first() == Some(&0x15) && answer.get(5) == Some(&2);
    for (bytes, alert) in [
        // It seems to begin a message that never comes.
        (&b"\x16\x03\x01\x00\x05hello"[..], false),
        (b"\x16\x03\x01\x00\x06\x01\x00\x00\x02hi", true),
        (&b"\x16\x03\x01\xff\xffhello"[..], true),
        (&b"\x16\x03\x03\x00\x04\x01\xff\xff\xff"[..], false),
        (&cut, true),
        // A warning that the peer ends, in the middle of a handshake.
        (&b"\x16\x03\x01\x00\x01\x01\x15\x03\x03\x00\x02\x01\x00more and more"[..], false),
    ] {
        let (mut socket, bytes) = (socket(&running), bytes.to_vec());
        let answer = beside({
            let bytes = bytes.clone();
            move || {
                socket.write_all(&bytes).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
                read_all(&mut socket)
            }
        });
        let answer = answer.await;
        assert!(!alert || fatal_alert(&answer), "{}: {answer:02x?}", bytes.escape_ascii());
    }
    assert_eq!(running.stats().tls.failures, 6);
    still_serves(&running, &authority).await;
}

#[tokio::test]
async fn silence_in_the_handshake_ends_at_its_limit() {
    let authority = Authority::new("ca");
    let server = Server::new().add(Probe::default()).limit(Limit::HandshakeTimeout, 50);
    let tls = authority.issue("127.0.0.1").tls();
    let running = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let hello = hello(&authority);
    for part in [&hello[..5], &hello[..hello.len() - 1], &hello] {
        let (mut socket, part) = (socket(&running), part.to_vec());
        beside(move || {
            socket.write_all(&part).unwrap();
            // Ends when the server closes, or fails the test after a long time.
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
        })
        .await;
    }
    assert_eq!(running.stats().tls.failures, 3);
    still_serves(&running, &authority).await;
}

#[tokio::test]
async fn silence_after_the_handshake_ends_at_the_limit_for_sniffing() {
    let authority = Authority::new("ca");
    let server = Server::new().add(Probe::default()).limit(Limit::SniffTimeout, 50);
    let tls = authority.issue("127.0.0.1").tls();
    let running = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let mut stream = Foreign::new(&authority.ca()).connect(&running);
    // A good end: rustls fails a stream that ends without a close_notify.
    let read = beside(move || {
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.read(&mut [0; 1]).unwrap()
    });
    assert_eq!(read.await, 0);
    assert_eq!(running.stats().unknown_protocol, 1);
}

#[tokio::test]
async fn peers_that_leave_in_the_handshake_leave_nothing_behind() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let hello = hello(&authority);
    for end in [1, 2, 3, 10, hello.len()] {
        socket(&running).write_all(&hello[..end]).unwrap();
    }
    soon(async {
        while running.stats().accepted < 5 || running.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    still_serves(&running, &authority).await;
}

#[tokio::test]
async fn draining_server_waits_for_no_handshake() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let mut socket = socket(&running);
    socket.write_all(&hello(&authority)[..20]).unwrap();
    soon(async {
        while running.stats().connections == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let drained = soon(running.drain(std::time::Duration::from_secs(600))).await;
    assert_eq!(drained.aborted, 0);
}
