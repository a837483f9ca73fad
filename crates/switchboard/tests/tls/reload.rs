//! Certificates that change while the server runs.

use crate::{
    foreign::{Foreign, beside},
    listeners::listen,
    support::{certificates::*, raw::soon, *},
};
use std::{fs, io::Write, time::Duration};
use switchboard::{Channel, Running};

/// The names in the certificate that a new connection is shown, whatever it is worth.
async fn shown(running: &Running, authority: &Authority, name: &'static str) -> bool {
    let ca = authority.ca();
    let session = Foreign { name, ..Foreign::new(&ca) }.session();
    let mut stream = rustls::StreamOwned::new(session, crate::foreign::socket(running));
    beside(move || stream.write_all(b"\xF5SWB").is_ok()).await
}

#[tokio::test]
async fn new_connections_get_the_new_certificate_and_old_ones_go_on() {
    let authority = Authority::new("ca");
    let files = authority.issue("old.example");
    let running = listen(files.tls().check_every(Duration::ZERO)).await;
    let builder =
        Channel::builder(&running.url()).ca(authority.ca()).server_name("old.example").connections(1);
    let channel = builder.connect().await.unwrap();
    files.replace(&authority.issue("new.example"));
    assert!(shown(&running, &authority, "old.example").await, "the files were not checked yet");
    running.reload_tls().unwrap();
    assert!(shown(&running, &authority, "new.example").await);
    assert!(!shown(&running, &authority, "old.example").await);
    let reply: Vec<u8> = soon(ask(&channel, &ECHO, &vec![1u8])).await.unwrap();
    assert_eq!(reply, [1]);
    // Nothing has changed since.
    running.reload_tls().unwrap();
    let tls = running.stats().tls;
    assert_eq!((tls.reloads, tls.reload_failures), (1, 0));
    assert_eq!(tls.certificates[0].names, ["dns:new.example"]);
}

#[tokio::test]
async fn broken_files_change_nothing_and_are_counted_once() {
    let authority = Authority::new("ca");
    let files = authority.issue("old.example");
    let running = listen(files.tls().check_every(Duration::ZERO)).await;
    fs::write(&files.certificate, "no certificate").unwrap();
    for _ in 0..2 {
        let error = running.reload_tls().unwrap_err();
        assert!(
            error.to_string().contains("has no certificate in PEM; keeping the current certificates"),
            "{error}"
        );
    }
    assert!(shown(&running, &authority, "old.example").await);
    fs::remove_file(&files.certificate).unwrap();
    assert!(running.reload_tls().unwrap_err().to_string().contains("cannot read"));
    // A certificate that has come without its key yet.
    let new = authority.issue("new.example");
    fs::copy(&new.certificate, &files.certificate).unwrap();
    assert!(running.reload_tls().unwrap_err().to_string().contains("does not belong"));
    assert!(shown(&running, &authority, "old.example").await);
    files.replace(&new);
    running.reload_tls().unwrap();
    assert!(shown(&running, &authority, "new.example").await);
    let tls = running.stats().tls;
    assert_eq!((tls.reloads, tls.reload_failures), (1, 3));
}

#[tokio::test]
async fn changes_are_found_without_a_signal() {
    let authority = Authority::new("ca");
    let files = authority.issue("old.example");
    let running = listen(files.tls().check_every(Duration::from_millis(5))).await;
    files.replace(&authority.issue("new.example"));
    soon(async {
        while running.stats().tls.reloads == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(shown(&running, &authority, "new.example").await);
}

#[tokio::test]
async fn clients_that_are_no_longer_trusted_cannot_resume() {
    let (servers, old, new) = (Authority::new("servers"), Authority::new("old"), Authority::new("new"));
    let roots = servers.file("clients.pem");
    fs::copy(old.ca(), &roots).unwrap();
    let tls = servers.issue("127.0.0.1").tls().client_roots(&roots).check_every(Duration::ZERO);
    let running = listen(tls).await;
    let alice = old.issue("alice");
    let builder = Channel::builder(&running.url()).ca(servers.ca()).identity(&alice.certificate, &alice.key);
    let channel = builder.connections(1).connect().await.unwrap();
    let ask_once = async || soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await;
    ask_once().await.unwrap();
    fs::copy(new.ca(), &roots).unwrap();
    running.reload_tls().unwrap();
    // The open connection goes on; a channel of the same kind gets no new one.
    ask_once().await.unwrap();
    let builder = Channel::builder(&running.url()).ca(servers.ca()).identity(&alice.certificate, &alice.key);
    let channel = builder.connect().await.unwrap();
    let status = soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await.unwrap_err();
    assert!(status.message().contains("does not trust the issuer of our certificate"), "{status}");
}

#[tokio::test]
async fn channel_takes_changed_files_with_its_next_connection() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let running = listen(new.issue("127.0.0.1").tls()).await;
    let roots = old.file("roots.pem");
    fs::copy(old.ca(), &roots).unwrap();
    let url = format!("{}?connections=1&backoff_max=1ms", running.url());
    let channel = Channel::builder(&url).ca(&roots).lazy().unwrap();
    let ask_once = async || soon(ask::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])).await;
    let status = ask_once().await.unwrap_err();
    assert!(status.message().contains("which is not trusted here"), "{status}");
    fs::copy(new.ca(), &roots).unwrap();
    // Calls fail at once while the back-off lasts.
    while ask_once().await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn time_to_expiry_is_reported() {
    let authority = Authority::new("ca");
    let late =
        authority.issue_with("late", &[], |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let fine = authority.issue("fine.example");
    let running = listen(fine.tls().certificate(&late.certificate, &late.key)).await;
    let certificates = running.stats().tls.certificates;
    assert_eq!(certificates[0].subject, "CN=fine.example");
    assert!(certificates[0].expires_in_seconds > 80 * 365 * 86_400, "{certificates:?}");
    assert!(
        certificates[1].expires_in_seconds < 0 && certificates[1].file.ends_with(".pem"),
        "{certificates:?}"
    );
}
