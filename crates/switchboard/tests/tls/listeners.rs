//! Connections that a listener accepts, and the errors for the others.

use crate::{
    foreign::{Foreign, beside, read_all, socket},
    support::{certificates::Authority, raw::soon, *},
};
use std::io::Write;
use switchboard::{Channel, Code, Retry, Running, Server, Tls};

pub(crate) async fn listen(tls: Tls) -> Running {
    let server = Server::new().add(Probe::default()).listen_tls("tcp://127.0.0.1:0", tls);
    server.start().await.unwrap()
}

async fn echo(channel: &Channel) {
    let reply: Vec<u8> = soon(ask(channel, &ECHO, &b"text".to_vec())).await.unwrap();
    assert_eq!(reply, b"text");
}

fn subject(stream: &crate::foreign::Stream) -> Vec<u8> {
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn one_port_serves_native_and_http_inside_and_outside_tls() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls().plaintext_too()).await;
    // Both schemes work, so the shown address is the plain one.
    let plain = running.url();
    assert!(plain.starts_with("tcp://"), "{plain}");
    echo(&Channel::connect(&plain).await.unwrap()).await;
    let url = format!("{}?ca={}", plain.replace("tcp://", "tls://"), authority.ca().display());
    echo(&Channel::connect(&url).await.unwrap()).await;
    #[cfg(feature = "http")]
    {
        use crate::foreign::health;
        let (ca, mut outside) = (authority.ca(), socket(&running));
        let mut inside = Foreign::new(&ca).connect(&running);
        let answers = beside(move || [health(&mut outside), health(&mut inside)]).await;
        for answer in answers {
            assert!(answer.contains("SERVING"), "{answer}");
        }
    }
    let tls = running.stats().tls;
    assert!(tls.handshakes >= 2 && tls.failures == 0 && tls.mismatches == 0, "{tls:?}");
}

#[tokio::test]
async fn alpn_decides_and_is_held_to() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    let ca = authority.ca();
    for (alpn, bytes, served) in [
        (&[&b"swb/1"[..]][..], &b"\xF5SWB\x01\0\0\0"[..], true),
        (&[b"h2", b"http/1.1"], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", true),
        (&[], b"\xF5SWB\x01\0\0\0", true),
        (&[b"swb/1"], b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", false),
        (&[b"h2"], b"\xF5SWB\x01\0\0\0", false),
        (&[b"nonsense"], b"\xF5SWB\x01\0\0\0", false),
        // TLS goes into no other TLS.
        (&[], b"\x16\x03\x01\x02\0", false),
    ] {
        if !cfg!(feature = "http") && alpn.contains(&&b"h2"[..]) {
            continue;
        }
        let mut stream = Foreign { alpn, ..Foreign::new(&ca) }.connect(&running);
        let some = beside(move || {
            let sent = stream.write_all(bytes);
            let mut first = [0; 4];
            sent.is_ok() && std::io::Read::read(&mut stream, &mut first).is_ok_and(|n| n > 0)
        });
        assert_eq!(some.await, served, "{alpn:?} {}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn certificate_is_chosen_by_the_requested_name() {
    let authority = Authority::new("ca");
    let default = authority.issue("default.example");
    let exact = authority.issue("a.example");
    let wild = authority.issue("*.test.example");
    let tls =
        default.tls().certificate(&wild.certificate, &wild.key).certificate(&exact.certificate, &exact.key);
    let running = listen(tls).await;
    let ca = authority.ca();
    for (name, chosen) in [
        ("default.example", &default),
        ("a.example", &exact),
        ("b.test.example", &wild),
        ("A.EXAMPLE", &exact),
    ] {
        let mut stream = Foreign { name, ..Foreign::new(&ca) }.connect(&running);
        let stream = beside(move || {
            stream.flush().unwrap();
            stream.write_all(b"x").unwrap();
            stream
        });
        let expected = std::fs::read_to_string(&chosen.certificate).unwrap();
        let der = rustls::pki_types::CertificateDer::from(subject(&stream.await));
        let shown =
            <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(
                expected.as_bytes(),
            );
        assert_eq!(der, shown.unwrap(), "{name}");
    }
    // A request for an unknown name, or two parts under a wildcard, gets the default certificate, which the
    // client refuses.
    let url = format!("{}?ca={}&server_name=c.b.test.example", running.url(), ca.display());
    let status = Channel::connect(&url).await.unwrap_err();
    assert!(
        status.message().contains("is for dns:default.example, not for \"c.b.test.example\""),
        "{status}"
    );
    assert_eq!(running.stats().tls.certificates.len(), 3);
}

#[tokio::test]
async fn plaintext_on_a_port_of_tls_gets_an_error_in_each_protocol() {
    let authority = Authority::new("ca");
    let running = listen(authority.issue("127.0.0.1").tls()).await;
    assert!(running.url().starts_with("tls://"), "{}", running.url());

    let mut http1 = socket(&running);
    let mut http2 = socket(&running);
    let (http1, http2) = beside(move || {
        http1.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        http2.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        (read_all(&mut http1), read_all(&mut http2))
    })
    .await;
    let http1 = String::from_utf8(http1).unwrap();
    assert!(http1.starts_with("HTTP/1.1 400 ") && http1.contains("this port takes TLS only"), "{http1}");
    // SETTINGS, then GOAWAY with INADEQUATE_SECURITY.
    assert!(http2[3] == 4 && http2[12] == 7 && http2[25] == 0xc, "{http2:02x?}");
    assert!(http2.ends_with(b"on the native wire"), "{}", http2.escape_ascii());

    let channel = Channel::connect(&running.url().replace("tls://", "tcp://")).await.unwrap();
    let status = soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("this port takes TLS only"), "{status}");
    assert!(running.stats().tls.mismatches >= 3, "{:?}", running.stats().tls);
}

#[tokio::test]
async fn tls_on_a_plain_port_gets_an_alert_and_plain_words() {
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let authority = Authority::new("ca");
    let url = format!("{}?ca={}", running.url().replace("tcp://", "tls://"), authority.ca().display());
    let status = Channel::connect(&url).await.unwrap_err();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
    assert!(status.message().contains("it takes plaintext only"), "{status}");
    assert_eq!(running.stats().tls.mismatches, 1);
}

#[tokio::test]
async fn options_of_the_url_are_those_of_the_builder() {
    let authority = Authority::new("ca");
    let files = authority.issue("127.0.0.1");
    let ca = authority.ca();
    let pair = format!("cert={}&key={}", files.certificate.display(), files.key.display());
    for (options, scheme) in [
        (pair.clone(), "tls"),
        (format!("{pair}&tls=only&calls_max=7"), "tls"),
        (format!("{pair}&tls=optional"), "tcp"),
        (format!("{pair}&client_ca={}&client=optional", ca.display()), "tls"),
    ] {
        let server = Server::new().add(Probe::default()).listen(format!("tcp://127.0.0.1:0?{options}"));
        let running = server.start().await.unwrap();
        let url = running.url();
        assert_eq!(url.split_once("://").unwrap().0, scheme, "{options}");
        let url = url.replace("tcp://", "tls://");
        echo(&Channel::builder(&url).ca(&ca).connect().await.unwrap()).await;
    }
}

#[tokio::test]
async fn errors_of_settings_name_the_cause() {
    let authority = Authority::new("ca");
    let (one, two) = (authority.issue("a"), authority.issue("b"));
    std::fs::write(authority.file("empty.pem"), "").unwrap();
    let (cert, key, empty) =
        (one.certificate.display(), one.key.display(), authority.file("empty.pem").display().to_string());
    let other = two.key.display();
    for (url, expected) in [
        ("tls://127.0.0.1:0".to_owned(), "TLS needs a certificate"),
        (format!("tcp://127.0.0.1:0?cert={cert}"), "go together"),
        ("tcp://127.0.0.1:0?tls=only".to_owned(), "are missing"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={key}&tls=maybe"), "expected tls=only or tls=optional"),
        (format!("unix:/nowhere?cert={cert}&key={key}"), "TLS is for tcp://"),
        ("tcp://127.0.0.1:0?cert=/nowhere&key=/nowhere".to_owned(), "cannot read /nowhere"),
        (format!("tcp://127.0.0.1:0?cert={empty}&key={key}"), "has no certificate in PEM"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={cert}"), "has no private key in PEM"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={other}"), "does not belong to the certificate"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={key}&client_ca={empty}"), "has no certificate in PEM"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={key}&client=optional"), "client_ca=FILE is missing"),
        (format!("tcp://127.0.0.1:0?cert={cert}&key={key}&client_ca={cert}&tls=optional"), "choose one"),
        ("tcp://127.0.0.1:0?nonsense=1".to_owned(), "is not a limit"),
    ] {
        let error = Server::new().add(Probe::default()).listen(&url).start().await.err().expect("refused");
        assert!(error.is_config() && error.to_string().contains(expected), "{url}: {error}");
    }
}
