//! Client certificates: when one is required, its identity in handlers, and the errors for clients without a
//! valid one.

use crate::{
    foreign::{Foreign, beside},
    support::{
        certificates::*,
        raw::{self, soon},
    },
};
use std::io::{Read, Write};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Kind, MethodInfo, Reply, Result, Running, Server, Service,
    ServiceInfo, Tls,
    codec::serde::{decode, encode},
};

static WHO: ServiceInfo =
    ServiceInfo { name: "test.Who", methods: &[MethodInfo::new("Am", Kind::Unary)], descriptor: &[] };
static AM: ClientMethod = ClientMethod { service: &WHO, index: 0, path: "test.Who/Am" };

/// Returns the identity of the caller.
struct Who;

impl Service for Who {
    fn info(&self) -> &'static ServiceInfo {
        &WHO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let codec = call.codec();
        let (_, cx) = call.into_one()?;
        let peer = cx.peer();
        assert!(peer.address.starts_with("tls://127.0.0.1:"), "{}", peer.address);
        let identity = peer.identity.as_ref();
        let seen = identity
            .map(|identity| format!("{} by {}: {:?}", identity.subject, identity.issuer, identity.names));
        Ok(Reply::one(encode(&seen, codec)?, cx))
    }
}

async fn listen(tls: Tls) -> Running {
    Server::new().add(Who).listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap()
}

async fn who(channel: &Channel) -> Result<Option<String>> {
    let call = channel.unary(&AM, Codec::Postcard, encode(&(), Codec::Postcard), decode::<Option<String>>);
    soon(std::future::IntoFuture::into_future(call)).await.map(switchboard::Response::into_inner)
}

fn alice(clients: &Authority) -> Files {
    clients.issue_with("alice", &[], |params| {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.subject_alt_names = vec![rcgen::SanType::URI("spiffe://example/alice".try_into().unwrap())];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    })
}

#[tokio::test]
async fn handlers_see_who_calls() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = listen(servers.issue("127.0.0.1").tls().client_roots(clients.ca())).await;
    let alice = alice(&clients);
    let builder = Channel::builder(&running.url()).ca(servers.ca()).identity(&alice.certificate, &alice.key);
    let seen = who(&builder.connect().await.unwrap()).await.unwrap().unwrap();
    assert_eq!(seen, "O=Example,CN=alice by CN=clients: [\"uri:spiffe://example/alice\"]");
}

#[tokio::test]
async fn resumed_session_knows_who_calls() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = listen(servers.issue("127.0.0.1").tls().client_roots(clients.ca())).await;
    let (ca, alice) = (servers.ca(), alice(&clients));
    let config = Foreign { identity: Some(&alice), ..Foreign::new(&ca) }.config();
    for kind in [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed] {
        let session = rustls::ClientConnection::new(config.clone(), "127.0.0.1".try_into().unwrap()).unwrap();
        let mut stream = rustls::StreamOwned::new(session, crate::foreign::socket(&running));
        beside(move || {
            let mut bytes = raw::PREFACE.to_vec();
            bytes.extend(raw::method(0, "test.Who/Am"));
            bytes.extend(raw::open_call(raw::WHOLE, 0, 1, &[]));
            stream.write_all(&bytes).unwrap();
            let mut seen = Vec::new();
            while !seen.windows(8).any(|part| part == b"CN=alice") {
                let mut some = [0; 1024];
                let count = stream.read(&mut some).unwrap();
                assert_ne!(count, 0, "{}", seen.escape_ascii());
                seen.extend(&some[..count]);
            }
            assert_eq!(stream.conn.handshake_kind(), Some(kind));
        })
        .await;
    }
}

#[tokio::test]
async fn client_without_a_certificate_gets_an_error_that_names_it() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = listen(servers.issue("127.0.0.1").tls().client_roots(clients.ca())).await;
    let channel = Channel::builder(&running.url()).ca(servers.ca()).connect().await;
    let status = who(&channel.unwrap()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(
        status.message().contains("requires a client certificate: set cert=FILE and key=FILE"),
        "{status}"
    );
}

#[tokio::test]
async fn client_with_a_wrong_certificate_is_refused() {
    let (servers, clients, others) =
        (Authority::new("servers"), Authority::new("clients"), Authority::new("others"));
    let running = listen(servers.issue("127.0.0.1").tls().client_roots(clients.ca())).await;
    let expired =
        clients.issue_with("late", &[], |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let for_servers = clients.issue_with("server", &[], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    });
    for (files, expected) in [
        (alice(&others), "does not trust the issuer of our certificate"),
        (expired, "refused our certificate (CertificateExpired)"),
        (for_servers, "refused our certificate"),
    ] {
        let builder =
            Channel::builder(&running.url()).ca(servers.ca()).identity(&files.certificate, &files.key);
        let status = who(&builder.connect().await.unwrap()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(expected), "{status}");
    }
    assert!(running.stats().tls.failures >= 3, "{:?}", running.stats().tls);
}

#[tokio::test]
async fn optional_certificate_may_be_missing_but_not_wrong() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let tls = servers.issue("127.0.0.1").tls().client_roots(clients.ca()).client_optional();
    let running = listen(tls).await;
    let builder = || Channel::builder(&running.url()).ca(servers.ca());
    assert_eq!(who(&builder().connect().await.unwrap()).await.unwrap(), None);
    let alice = alice(&clients);
    let known = builder().identity(&alice.certificate, &alice.key).connect().await.unwrap();
    assert!(who(&known).await.unwrap().unwrap().contains("CN=alice"));
    let stranger = servers.self_signed("alice");
    let wrong = builder().identity(&stranger.certificate, &stranger.key).connect().await.unwrap();
    assert_eq!(who(&wrong).await.unwrap_err().code(), Code::Unavailable);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn http_clients_need_certificates_too() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let running = listen(servers.issue("127.0.0.1").tls().client_roots(clients.ca())).await;
    let (ca, alice) = (servers.ca(), alice(&clients));
    let mut known = Foreign { identity: Some(&alice), ..Foreign::new(&ca) }.connect(&running);
    let answer = beside(move || crate::foreign::health(&mut known)).await;
    assert!(answer.contains("SERVING"), "{answer}");
}
