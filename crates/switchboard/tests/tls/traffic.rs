//! Traffic inside TLS: large, in both directions at once, complete to the last byte.

use crate::{
    foreign::{Foreign, beside},
    listeners::listen,
    support::{certificates::*, raw::soon, *},
};
use std::io::{Read, Write};
use switchboard::{Channel, Limit};

/// Pieces of 1 MiB, each with bytes of its own.
const PIECES: usize = 64;

fn piece(number: usize) -> Vec<u8> {
    (0..1usize << 20).map(|at| (at * 31 + at / 251 + number * 7) as u8).collect()
}

#[tokio::test]
async fn sixty_four_mebibytes_come_back_as_they_were_sent() {
    let (_running, channel, _authority) = served_tls().await;
    let calls = (0..4).map(|lane| {
        let channel = channel.clone();
        tokio::spawn(async move {
            for number in (lane..PIECES).step_by(4) {
                let sent = piece(number);
                let reply = mirror(&channel, sent.clone()).await.unwrap();
                assert!(reply == sent, "{number}");
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn slow_reader_gets_every_byte() {
    const BYTES: usize = 1 << 20;
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let mut stream = Foreign::new(&authority.ca()).connect(&running);
    let begin: Vec<u8> = [raw::PREFACE.to_vec(), raw::method(12, "test.Probe/Mirror")].concat();
    let read = beside(move || {
        stream.write_all(&begin).unwrap();
        for id in 0..4 {
            let call = raw::open_call(raw::WHOLE, 12, id, &vec![id as u8 + 1; BYTES]);
            // Nothing is read meanwhile: what the sockets do not hold waits in the server.
            stream.write_all(&call).unwrap();
        }
        let mut preface = [0; 8];
        stream.read_exact(&mut preface).unwrap();
        assert_eq!(preface, raw::PREFACE);
        let mut mirrored = 0;
        while mirrored < 4 {
            let mut header = [0; 12];
            stream.read_exact(&mut header).unwrap();
            let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let mut body = vec![0; length as usize];
            stream.read_exact(&mut body).unwrap();
            if header[4] == raw::REPLY {
                mirrored += 1;
                assert!(body.len() == BYTES && body.iter().all(|byte| *byte == header[8] + 1));
            }
        }
    });
    soon(read).await;
}

#[tokio::test]
async fn drained_server_says_the_end_of_tls() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let mut stream = Foreign::new(&authority.ca()).connect(&running);
    let mut stream = beside(move || {
        stream.write_all(raw::PREFACE).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream
    })
    .await;
    let drain = tokio::spawn(running.drain(std::time::Duration::from_secs(600)));
    // rustls fails a stream that ends without a close_notify.
    let ended = beside(move || stream.read_to_end(&mut Vec::new()));
    assert!(soon(ended).await.is_ok());
    assert_eq!(soon(drain).await.unwrap().aborted, 0);
}

#[tokio::test]
async fn calls_in_flight_end_before_a_drain_does() {
    let (running, channel, _authority) = served_tls().await;
    let calls: Vec<_> = (0..50).map(|_| tokio::spawn(mirror_of(channel.clone()))).collect();
    for call in calls {
        call.await.unwrap();
    }
    drop(channel);
    assert_eq!(soon(running.drain(std::time::Duration::from_secs(600))).await.aborted, 0);
}

async fn mirror_of(channel: Channel) {
    mirror(&channel, vec![5; 10_000]).await.unwrap();
}

#[tokio::test]
async fn large_messages_leave_nothing_behind() {
    let authority = Authority::new("ca");
    let tls = authority.issue("127.0.0.1").tls();
    let server = switchboard::Server::new().add(Probe::default()).limit(Limit::MessageBytesMax, 16 << 20);
    let running = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    let builder = Channel::builder(&running.url()).ca(authority.ca()).limit(Limit::MessageBytesMax, 16 << 20);
    let channel = builder.connections(1).connect().await.unwrap();
    for number in 0..4 {
        let sent = vec![number; (16 << 20) - 100];
        assert!(mirror(&channel, sent.clone()).await.unwrap() == sent);
    }
}
