//! Whole connections of libzmq, as both sides see them.

use super::*;
use crate::{
    spec::Verdict,
    zmtp::{Credentials, sniff},
};
use std::time::Duration;

const NULL: &str = "ff00000000000000017f 03 01 4e554c4c00000000000000000000000000000000 00";
const PLAIN: &str = "ff00000000000000017f 03 01 504c41494e000000000000000000000000000000 00";

/// The greeting with its trailing zeros.
fn greeted(start: &str) -> Vec<u8> {
    let mut bytes = hex(start);
    bytes.resize(GREETING_BYTES, 0);
    bytes
}

#[test]
fn req_of_libzmq() {
    let ready = "04260552454144590b536f636b65742d5479706500000003524551 084964656e7469747900000000";
    let bytes = [greeted(NULL), hex(ready), hex("010000026869")].concat();
    let (events, out, error) = run_split(&Settings::new(SocketType::Router), &bytes);
    let [Event::Ready(peer), rest @ ..] = &events[..] else { panic!("{events:?}") };
    assert_eq!((peer.socket, peer.version), (SocketType::Req, Version::V3_1));
    assert!(peer.identity.is_empty() && peer.properties.is_empty());
    assert_eq!((rest, error), (&[body(b"", true), body(b"hi", false)][..], None));
    assert_eq!(
        out,
        hex("04290552454144590b536f636b65742d5479706500000006524f55544552084964656e7469747900000000")
    );
}

#[test]
fn dealer_of_libzmq_with_an_identity_and_long_frames() {
    // The signature has the length of the identity.
    let start = NULL.replacen("017f", "047f", 1);
    let ready =
        "042c0552454144590b536f636b65742d54797065000000064445414c4552 084964656e7469747900000003616263";
    let (x, y) = (vec![b'x'; 256], vec![b'y'; 255]);
    let frames = [&hex("0100 03 0000000000000100")[..], &x, &hex("00ff"), &y].concat();
    let (events, ..) = run_split(
        &Settings::new(SocketType::Router),
        &[greeted(&start), hex(ready), frames.clone()].concat(),
    );
    let [Event::Ready(peer), rest @ ..] = &events[..] else { panic!("{events:?}") };
    assert_eq!((peer.socket, &peer.identity[..]), (SocketType::Dealer, &b"abc"[..]));
    assert_eq!(rest, [body(b"", true), body(&x, true), body(&y, false)]);
    // This side writes the same bytes.
    let mut out = Outbox::new();
    let settings = Settings::new(SocketType::Dealer).with_identity("abc").unwrap();
    let mut connection = Connection::new(Arc::new(settings), &mut out);
    let mut input = Input::default();
    input.extend(&[greeting("NULL", 1), super::ready(SocketType::Router)].concat());
    assert!(matches!(connection.recv(&mut input, &mut out), Ok(Some(Event::Ready(_)))));
    assert!(connection.is_open());
    let (x, y) = (Bytes::from(x), Bytes::from(y));
    assert!(connection.send([&Bytes::new(), &x, &y], &mut out));
    assert_eq!(out.take_all(), [greeted(NULL), hex(ready), frames].concat());
}

#[test]
fn subscriptions_of_libzmq_in_both_forms() {
    let ready = "04190552454144590b536f636b65742d5479706500000003535542";
    for (minor, version, subscriptions) in [
        (1, Version::V3_1, "040d09535542534352494245746f70 040a0643414e43454c746f70"),
        (0, Version::V3_0, "000401746f70 000400746f70"),
    ] {
        for publisher in [SocketType::Pub, SocketType::Xpub] {
            let bytes = [greeted(NULL), hex(ready), hex(subscriptions)].concat();
            let (mut events, ..) = run_split(&Settings::new(publisher), &bytes);
            events.remove(0);
            let topic = Bytes::from_static(b"top");
            assert_eq!(events, [Event::Subscribe(topic.clone()), Event::Cancel(topic)]);
        }
        // This side chooses the form by the lower of the two versions, as libzmq does.
        for (ours, theirs) in [(Version::V3_1, minor), (version, 1)] {
            let mut out = Outbox::new();
            let settings = Settings::new(SocketType::Sub).with_version(ours);
            let mut connection = Connection::new(Arc::new(settings), &mut out);
            assert!(!connection.subscribe(b"early", &mut out));
            let mut input = Input::default();
            input.extend(&[greeting("NULL", theirs), super::ready(SocketType::Xpub)].concat());
            assert!(matches!(connection.recv(&mut input, &mut out), Ok(Some(Event::Ready(_)))));
            out.take_all();
            assert!(connection.subscribe(b"top", &mut out) && connection.cancel(b"top", &mut out));
            assert_eq!(out.take_all(), hex(subscriptions));
        }
    }
}

#[test]
fn push_of_libzmq_with_heartbeats() {
    let bytes = "041a0552454144590b536f636b65742d547970650000000450555348 00036a6f62 04070450494e47000f";
    let (events, out, error) =
        run_split(&Settings::new(SocketType::Pull), &[greeted(NULL), hex(bytes)].concat());
    let ping = Event::Ping { ttl: Some(Duration::from_millis(1500)) };
    assert_eq!((&events[1..], error), (&[body(b"job", false), ping][..], None));
    assert!(out.ends_with(&hex("040504504f4e47")));
}

#[test]
fn plain_of_libzmq_in_both_roles() {
    let hello = "04130548454c4c4f0561646d696e06736563726574";
    let initiate = "041d08494e4954494154450b536f636b65742d547970650000000450555348";
    let credentials = Credentials::new("admin", "secret").unwrap();
    let settings = Settings::new(SocketType::Pull).with_mechanism(Mechanism::PlainServer);
    let bytes = [greeted(PLAIN), hex(hello), hex(initiate), hex("00036a6f62")].concat();
    let (events, out, error) = run_split(&settings, &bytes);
    assert_eq!(events[0], Event::Credentials(credentials.clone()));
    assert!(matches!(&events[1], Event::Ready(peer) if peer.socket == SocketType::Push));
    assert_eq!((&events[2..], error), (&[body(b"job", false)][..], None));
    assert_eq!(out, [command("WELCOME", b""), ready(SocketType::Pull)].concat());
    assert!(!format!("{events:?}").contains("secret"));

    let settings = Settings::new(SocketType::Push).with_mechanism(Mechanism::PlainClient(credentials));
    let (events, written, _) = run_split(&settings, &[greeting("PLAIN", 1), out].concat());
    assert!(matches!(&events[..], [Event::Ready(peer)] if peer.socket == SocketType::Pull));
    assert_eq!(written, [hex(hello), hex(initiate)].concat());
}

#[test]
fn messages_of_xsub_are_subscriptions() {
    let bytes = "041a0552454144590b536f636b65742d547970650000000458535542 000401616263 0003787879";
    let bytes = [greeted(NULL), hex(bytes)].concat();
    let (events, ..) = run_split(&Settings::new(SocketType::Xpub), &bytes);
    assert_eq!(events[1..], [Event::Subscribe(Bytes::from_static(b"abc")), body(b"xxy", false)]);
    let (events, ..) = run_split(&Settings::new(SocketType::Pub), &bytes);
    assert_eq!(events[1..], [Event::Subscribe(Bytes::from_static(b"abc"))]);
}

#[test]
fn the_signature_is_detected_for_any_split() {
    let bytes = greeted(NULL);
    for end in 0..=bytes.len() {
        let expected = if end < 10 { Verdict::More } else { Verdict::Yes };
        assert_eq!(sniff(&bytes[..end]), expected, "{end}");
    }
    for other in ["ffff1401", "fe", "16", "ff00000000000000017e", "ff01"] {
        assert_eq!(sniff(&hex(other)), Verdict::No, "{other}");
    }
}
