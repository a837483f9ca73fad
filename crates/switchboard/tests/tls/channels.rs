//! Verification of servers by a channel, and its errors.

use crate::{
    listeners::listen,
    support::{certificates::*, raw::soon, *},
};
#[cfg(feature = "http")]
use switchboard::Codec;
use switchboard::{Channel, Code, Retry, Status};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Returns the error of a channel that trusts `authority` and gets this certificate.
async fn refusal(authority: &Authority, shown: &Files) -> Status {
    let running = listen(shown.tls()).await;
    let channel = Channel::builder(&running.url()).ca(authority.ca()).connect();
    let status = soon(channel).await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().starts_with("connect to tls://127.0.0.1:"), "{status}");
    status
}

#[tokio::test]
async fn certificate_that_does_not_hold_is_named_with_the_reason() {
    let (authority, other) = (Authority::new("trusted"), Authority::new("unknown"));
    let name = "127.0.0.1";
    let late =
        authority.issue_with("late", &[name], |params| params.not_after = rcgen::date_time_ymd(2021, 2, 3));
    let early =
        authority.issue_with("early", &[name], |params| params.not_before = rcgen::date_time_ymd(2100, 2, 3));
    let elsewhere = authority.issue_with("elsewhere", &["a.example", "10.0.0.1"], |_| {});
    let for_clients = authority.issue_with("client", &[name], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    let of_an_authority = authority.issue_with("ca", &[name], |params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    for (shown, expected) in [
        (late, "\"CN=late\" expired on 2021-02-03 00:00:00 UTC; it is 20"),
        (early, "\"CN=early\" is not valid before 2100-02-03 00:00:00 UTC"),
        (elsewhere, "\"CN=elsewhere\" is for dns:a.example, ip:10.0.0.1, not for \"127.0.0.1\""),
        (other.issue(name), "\"CN=127.0.0.1\" was issued by \"CN=unknown\", which is not trusted here"),
        (other.self_signed(name), "\"CN=127.0.0.1\" is self-signed, which is not trusted here"),
        (for_clients, "\"CN=client\" is not meant for servers"),
        (of_an_authority, "\"CN=ca\" is that of an authority"),
    ] {
        let status = refusal(&authority, &shown).await;
        assert!(status.message().contains(expected), "{expected}: {status}");
    }
}

#[tokio::test]
async fn roots_of_the_machine_are_trusted_unless_others_are_named() {
    let authority = Authority::new("unknown");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let status = Channel::connect(&running.url()).await.unwrap_err();
    // A machine without any roots says so.
    let expected = ["was issued by \"CN=unknown\", which is not trusted here", "has no root certificates"];
    assert!(expected.iter().any(|expected| status.message().contains(expected)), "{status}");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn websockets_verify_as_others_do() {
    let (running, channel, authority) = served_over_websocket_tls("?deflate=true").await;
    let sent = vec![1u8; 100_000];
    assert!(ask::<_, Vec<u8>>(&channel, &ECHO, &sent).await.unwrap() == sent);
    let url = running.url().replace("tls://", "wss://");
    let other = Authority::new("unknown");
    for (trusted, expected) in [(&other, "which is not trusted here"), (&authority, "not for \"localhost\"")]
    {
        let url = if std::ptr::eq(trusted, &authority) {
            url.replace("127.0.0.1", "localhost")
        } else {
            url.clone()
        };
        let status = soon(Channel::builder(&url).ca(trusted.ca()).connect()).await.unwrap_err();
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
        assert!(status.message().contains(expected), "{url}: {status}");
    }
    // A WebSocket without TLS to a port with TLS alone, and the other way round.
    let plain = running.url().replace("tls://", "ws://");
    assert!(soon(Channel::connect(&plain)).await.is_err());
    let server =
        switchboard::Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let url = server.url().replace("tcp://", "wss://");
    let status = soon(Channel::builder(&url).ca(authority.ca()).connect()).await.unwrap_err();
    assert!(status.message().starts_with("connect to wss://127.0.0.1:"), "{status}");
}

#[cfg(feature = "http")]
#[tokio::test]
async fn rpcx_goes_through_websockets_too() {
    let (running, _, authority) = served_over_websocket_tls("").await;
    let at = running.url().replace("tls://", "");
    // One list may have both: neither has a name in ALPN.
    for url in [format!("wss://{at}?wire=rpcx"), format!("wss://{at},tls://{at}?wire=rpcx")] {
        let channel = Channel::builder(&url).ca(authority.ca()).connect().await.unwrap();
        for _ in 0..2 {
            assert!(echo_of(&channel, Codec::MsgPack, 100_000).await.unwrap() == [7; 100_000], "{url}");
        }
    }
}

#[tokio::test]
async fn another_name_can_be_expected() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("service.example").tls()).await;
    let builder = || Channel::builder(&running.url()).ca(authority.ca());
    assert!(builder().connect().await.is_err());
    let channel = builder().server_name("service.example").connect().await.unwrap();
    let reply: Vec<u8> = ask(&channel, &ECHO, &vec![1u8]).await.unwrap();
    assert_eq!(reply, [1]);
    let url = format!("{}?ca={}&server_name=service.example", running.url(), authority.ca().display());
    Channel::connect(&url).await.unwrap();
}

/// Returns the error of a channel whose server responds to a ClientHello with these bytes and closes.
async fn answered(answer: &'static [u8]) -> Status {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tls://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut hello = [0; 5];
        socket.read_exact(&mut hello).await.unwrap();
        let rest = u16::from_be_bytes([hello[3], hello[4]]);
        socket.read_exact(&mut vec![0; rest.into()]).await.unwrap();
        socket.write_all(answer).await.unwrap();
    });
    let authority = Authority::new("ca");
    let status = soon(Channel::builder(&url).ca(authority.ca()).connections(1).connect()).await.unwrap_err();
    server.await.unwrap();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    status
}

#[tokio::test]
async fn server_that_speaks_no_tls_is_named_in_plain_words() {
    for (answer, expected) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "does not speak TLS on this port (it answered \"HTTP/1.1\")",
        ),
        (b"", "closed the connection in the middle of the handshake; if it takes plaintext only, use tcp://"),
        (b"\x15\x03\x03\0\x02\x02\x28", "it takes plaintext only, or has no cipher in common"),
        (b"\x15\x03\x03\0\x02\x02\x46", "no TLS version in common"),
        (b"\x15\x03\x03\0\x02\x01\0", "closed the connection in the middle of the handshake"),
        (b"\x16\x03\x03\0\x04\x63\0\0\0", "violated the TLS protocol"),
    ] {
        let status = answered(answer).await;
        assert!(status.message().contains(expected), "{}: {status}", answer.escape_ascii());
    }
}

#[tokio::test]
async fn channel_without_tls_knows_a_server_that_wants_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}?connections=1", listener.local_addr().unwrap());
    let channel = Channel::connect(&url).await.unwrap();
    let (mut socket, _) = listener.accept().await.unwrap();
    socket.write_all(b"\x15\x03\x01\0\x02\x02\x46").await.unwrap();
    let status = soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await.unwrap_err();
    assert!(status.message().contains("but TLS: call it with tls://"), "{status}");
}

#[tokio::test]
async fn server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tls://{}?connect_timeout=50ms&connections=1", listener.local_addr().unwrap());
    let authority = Authority::new("ca");
    let status = soon(Channel::builder(&url).ca(authority.ca()).connect()).await.unwrap_err();
    assert!(status.message().contains("connect_timeout"), "{status}");
}

#[tokio::test]
async fn errors_of_options_name_the_cause() {
    let authority = Authority::new("ca");
    let (ca, pair) = (authority.ca(), authority.issue("a"));
    let (ca, cert, key) = (ca.display(), pair.certificate.display(), pair.key.display());
    for (url, expected) in [
        ("tls://127.0.0.1:1?ca=/nowhere".to_owned(), "cannot read /nowhere"),
        (format!("tls://127.0.0.1:1?ca={key}"), "has no certificate in PEM"),
        (format!("tls://127.0.0.1:1?ca={ca}&cert={cert}"), "go together"),
        (format!("tls://127.0.0.1:1?ca={ca}&cert={ca}&key={key}"), "does not belong to the certificate"),
        (format!("tls://127.0.0.1:1?ca={ca}&server_name=a b"), "is not a valid name for a certificate"),
        (format!("tcp://127.0.0.1:1?ca={ca}"), "are for tls://HOST:PORT and wss://"),
        ("tls://127.0.0.1:1,wss://127.0.0.1:1".to_owned(), "mixes wss:// with others"),
    ] {
        let status = Channel::builder(&url).lazy().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{url}: {status}");
        assert!(status.message().contains(expected), "{url}: {status}");
    }
}
