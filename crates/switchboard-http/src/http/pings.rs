//! Pings of an HTTP/2 peer: closes a connection that exceeds `ping_interval_min`, as gRPC servers do (gRFC A8).
//!
//! A ping is in time when data of a call was sent or received since the previous ping, or when the previous ping is
//! `ping_interval_min` ago. After more than [`STRIKES_MAX`] other pings, the peer gets GOAWAY with `ENHANCE_YOUR_CALM`
//! and the text `too_many_pings`, which makes gRPC clients lengthen their keepalive interval, and the connection ends.
//! Pings of busy connections, which measure bandwidth or follow a cancellation, do not count.
//!
//! hyper does not report pings and cannot send such a GOAWAY. So this module inspects the bytes as they pass: nine
//! bytes of each frame.

use bytes::{Buf, Bytes, BytesMut};
use std::{
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use switchboard_net::net::Io;
use tokio::io::AsyncWrite;

/// `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// As gRPC has it: the peer may have changed its interval just before.
const STRIKES_MAX: u32 = 2;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;
const WHY: &[u8] = b"too_many_pings";

/// The ping state of one connection.
pub(super) struct Pings {
    interval: Duration,
    received: Frames,
    sent: Frames,
    /// Time of the last ping, and whether data of a call was sent or received since then.
    last: Option<Instant>,
    busy: bool,
    strikes: u32,
    /// The highest stream of the peer.
    stream: u32,
    /// Bytes of GOAWAY that are still to be written, once the end is decided.
    end: Option<Bytes>,
}

impl Pings {
    /// An interval of zero allows any number of pings.
    pub(super) fn new(interval: Duration) -> Box<Pings> {
        let received = Frames { left: PREFACE_BYTES, head: [u8::MAX; HEAD_BYTES], ..Frames::default() };
        Box::new(Pings {
            interval,
            received,
            sent: Frames::default(),
            last: None,
            busy: false,
            strikes: 0,
            stream: 0,
            end: None,
        })
    }

    /// Records the bytes that the peer sent; returns how many of them belong to bodies.
    pub(super) fn received(&mut self, bytes: &[u8], now: Instant) -> usize {
        let Pings { interval, last, busy, strikes, stream, .. } = self;
        let of_bodies = self.received.pass(bytes, |frame| match frame.kind {
            DATA | RST_STREAM => *busy = true,
            HEADERS => {
                *busy = true;
                *stream = frame.stream.max(*stream);
            }
            PING if frame.flags & ACK == 0 => {
                let is_soon =
                    last.replace(now).is_some_and(|last| now.saturating_duration_since(last) < *interval);
                if mem::take(busy) {
                    *strikes = 0;
                } else if is_soon {
                    *strikes += 1;
                }
            }
            _ => {}
        });
        if *strikes > STRIKES_MAX && self.end.is_none() {
            self.end = Some(farewell(self.stream));
        }
        of_bodies
    }

    /// Records the bytes that were written to the peer.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        let busy = &mut self.busy;
        self.sent.pass(bytes, |frame| *busy |= matches!(frame.kind, DATA | HEADERS | RST_STREAM));
    }

    /// Returns whether the connection must end.
    pub(super) fn are_too_many(&self) -> bool {
        self.end.is_some()
    }

    /// Returns how many of `bytes` may still be written before the end: the rest of a frame, or of its head.
    pub(super) fn before_end(&self, bytes: usize) -> usize {
        bytes.min(self.sent.begun())
    }

    /// Ends the connection as soon as no frame is partly written; ready with the error of the connection.
    pub(super) fn poll_end(&mut self, io: &mut Box<dyn Io>, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.sent.begun() > 0 {
            // The write of the rest of the frame polls this again.
            return Poll::Pending;
        }
        let end = self.end.get_or_insert_default();
        let ended = ready!(write_all(io, end, cx));
        Poll::Ready(
            ended
                .err()
                .unwrap_or_else(|| io::Error::other("the peer sent too many pings (ping_interval_min)")),
        )
    }
}

fn write_all(io: &mut Box<dyn Io>, rest: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while !rest.is_empty() {
        match ready!(Pin::new(&mut *io).poll_write(cx, rest))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => rest.advance(written),
        }
    }
    Pin::new(io).poll_flush(cx)
}

/// Creates a GOAWAY frame; streams up to `stream` may have begun.
fn farewell(stream: u32) -> Bytes {
    let mut frame = BytesMut::new();
    frame.extend_from_slice(&(8 + WHY.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(&[GOAWAY, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    frame.extend_from_slice(WHY);
    frame.freeze()
}

/// The head of a frame.
struct Head {
    kind: u8,
    flags: u8,
    stream: u32,
}

/// Parser state of the frames of one direction.
#[derive(Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that have arrived.
    have: usize,
    /// Bytes that follow the last head.
    left: usize,
}

impl Frames {
    /// Processes the next bytes and reports each complete head; returns how many of them belong to bodies.
    fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Head)) -> usize {
        let mut of_bodies = 0;
        loop {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            if self.head[3] == DATA {
                of_bodies += skipped;
            }
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return of_bodies;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.have));
            self.head[self.have..self.have + taken.len()].copy_from_slice(taken);
            self.have += taken.len();
            bytes = rest;
            if self.have < HEAD_BYTES {
                return of_bodies;
            }
            self.have = 0;
            let [a, b, c, kind, flags, stream @ ..] = self.head;
            self.left = u32::from_be_bytes([0, a, b, c]) as usize;
            // The first bit is reserved.
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            seen(Head { kind, flags, stream });
        }
    }

    /// Returns the bytes that a partly written frame still needs, its head first.
    fn begun(&self) -> usize {
        if self.have > 0 { HEAD_BYTES - self.have } else { self.left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = (payload as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.resize(HEAD_BYTES + payload, 0);
        frame
    }

    fn pings(interval: Duration) -> Box<Pings> {
        let mut pings = Pings::new(interval);
        pings.received(&[b'x'; PREFACE_BYTES], Instant::now());
        pings
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_split() {
        let bytes =
            [frame(HEADERS, 4, 300), frame(PING, 0, 8), frame(DATA, 1, 0), frame(PING, ACK, 8)].concat();
        let kinds = |step: usize| {
            let (mut frames, mut kinds) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(step) {
                frames.pass(piece, |head| kinds.push((head.kind, head.flags, head.stream)));
            }
            assert_eq!(frames.begun(), 0);
            kinds
        };
        let whole = kinds(bytes.len());
        assert_eq!(whole, [(HEADERS, 4, 1), (PING, 0, 1), (DATA, 1, 1), (PING, ACK, 1)]);
        for step in 1..20 {
            assert_eq!(kinds(step), whole);
        }
    }

    #[test]
    fn early_pings_on_an_idle_connection_are_counted() {
        let (mut pings, now) = (pings(Duration::from_secs(1)), Instant::now());
        let ping = frame(PING, 0, 8);
        for strikes in 0..=STRIKES_MAX {
            pings.received(&ping, now);
            assert_eq!((pings.strikes, pings.are_too_many()), (strikes, false));
        }
        pings.received(&ping, now);
        assert!(pings.are_too_many());
        let mut welcome = self::pings(Duration::ZERO);
        welcome.received(&ping.repeat(20), now);
        assert!(!welcome.are_too_many());
    }

    #[test]
    fn pings_of_busy_connections_late_pings_and_acks_are_not_counted() {
        let (ping, second, now) = (frame(PING, 0, 8), Duration::from_secs(1), Instant::now());
        let mut busy = pings(second);
        for _ in 0..20 {
            busy.received(&ping, now);
            busy.received(&ping, now);
            busy.sent(&frame(DATA, 0, 5));
            busy.received(&ping, now);
            busy.received(&frame(RST_STREAM, 0, 4), now);
        }
        let mut acks = pings(second);
        acks.received(&frame(PING, ACK, 8).repeat(20), now);
        let mut late = pings(second);
        for at in 0..20 {
            late.received(&ping, now + second * at);
        }
        assert!(![busy, acks, late].iter().any(|pings| pings.are_too_many()));
    }
}
