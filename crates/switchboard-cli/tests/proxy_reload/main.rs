//! `switchboard proxy` whose settings change while calls go through it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod named;
mod process;
#[path = "../support/mod.rs"]
mod support;

use named::{Named, chat, hold, who};
use process::Proxy;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use support::serving::{self, lines};
use switchboard::{Channel, Code, Result, Status};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("this hangs")
}

async fn until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "this does not come");
        tokio::task::yield_now().await;
    }
}

async fn channel_to(proxy: &Proxy) -> Channel {
    Channel::connect(&proxy.address).await.unwrap()
}

fn failed<T>(result: Result<T>) -> Status {
    result.err().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_end_on_the_old_servers_and_their_connections_close() {
    for (options, more) in [
        ("", ""),
        ("?wire=grpc", ""),
        ("?balance=round_robin", ""),
        ("?wire=grpc", "service = [\"test.Named\"]\n"),
    ] {
        let (old, new) = (Named::start("old").await, Named::start("new").await);
        let settings = |to: &Named| format!("to = [\"{}{options}\"]\n{more}", to.address);
        let proxy = Proxy::start(&format!("switch{}{}", options.len(), more.len()), &settings(&old));
        let channel = channel_to(&proxy).await;
        assert_eq!(soon(who(&channel)).await.unwrap(), "old", "{options}");
        let holding = tokio::spawn({
            let channel = channel.clone();
            async move { hold(&channel).await }
        });
        let (sender, mut replies) = soon(chat(&channel)).await.unwrap();
        sender.send("a".to_owned()).await.unwrap();
        assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("old: a"), "{options}");
        until(|| old.held() == 1).await;

        proxy.reload(&settings(&new), "to has changed");
        assert_eq!(soon(who(&channel)).await.unwrap(), "new", "{options}");
        sender.send("b".to_owned()).await.unwrap();
        assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("old: b"), "{options}");
        let (other, mut others) = soon(chat(&channel)).await.unwrap();
        other.send("c".to_owned()).await.unwrap();
        assert_eq!(soon(others.next()).await.unwrap().as_deref(), Some("new: c"), "{options}");
        assert!(old.connections() > 0, "{options}");
        old.release();
        assert_eq!(soon(holding).await.unwrap().unwrap(), "old", "{options}");
        sender.finish();
        assert_eq!(soon(replies.next()).await.unwrap(), None, "{options}");
        until(|| old.connections() == 0).await;
        // And back again, under a stream that is open on the other.
        proxy.reload(&settings(&old), "to has changed");
        assert_eq!(soon(who(&channel)).await.unwrap(), "old", "{options}");
        other.finish();
        assert_eq!(soon(others.next()).await.unwrap(), None, "{options}");
        until(|| new.connections() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_however_often_the_servers_change() {
    for options in ["", "?wire=grpc", "?wire=connect&http=1", "?balance=round_robin"] {
        let servers = [Named::start("a").await, Named::start("b").await];
        let settings = |to: usize| format!("to = [\"{}{options}\"]\n", servers[to].address);
        let proxy = Proxy::start(&format!("often{}", options.len()), &settings(0));
        let channel = channel_to(&proxy).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let calling = (0..8).map(|_| {
            let (channel, is_over) = (channel.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let name = soon(who(&channel)).await?;
                    assert!(["a", "b"].contains(&&*name), "{name}");
                }
                Ok::<_, Status>(())
            })
        });
        let calling: Vec<_> = calling.collect();
        for turn in 1..=20 {
            proxy.reload(&settings(turn % 2), "to has changed");
            let wanted = ["a", "b"][turn % 2];
            assert_eq!(soon(who(&channel)).await.unwrap(), wanted, "{options}");
        }
        is_over.store(true, Ordering::Relaxed);
        for calling in calling {
            soon(calling).await.unwrap().unwrap();
        }
        until(|| servers[1].connections() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_end_on_the_old_servers_in_time_is_aborted() {
    for options in ["", "?wire=grpc", "?wire=grpc-web&http=1", "?balance=round_robin"] {
        let (old, new) = (Named::start("old").await, Named::start("new").await);
        let settings =
            |to: &Named| format!("to = [\"{}{options}\"]\n[limits]\ndrain_timeout = \"0ms\"\n", to.address);
        let proxy = Proxy::start(&format!("cut{}", options.len()), &settings(&old));
        let channel = channel_to(&proxy).await;
        let holding = tokio::spawn({
            let channel = channel.clone();
            async move { hold(&channel).await }
        });
        until(|| old.held() == 1).await;
        let (sender, mut replies) = soon(chat(&channel)).await.unwrap();
        sender.send("a".to_owned()).await.unwrap();
        // HTTP/1.1 answers when the request has ended.
        let is_open = !options.contains("http=1");
        if is_open {
            assert_eq!(soon(replies.next()).await.unwrap().as_deref(), Some("old: a"), "{options}");
        }
        proxy.reload(&settings(&new), "from before the reload after 0ns (drain_timeout)");
        let status = failed(soon(holding).await.unwrap());
        assert_eq!(status.code(), Code::Unavailable, "{options}: {status}");
        if is_open {
            let status = failed(soon(replies.next()).await);
            assert_eq!(status.code(), Code::Unavailable, "{options}: {status}");
        }
        until(|| old.connections() == 0 && old.held() == 0).await;
        assert_eq!(soon(who(&channel)).await.unwrap(), "new", "{options}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_anywhere_changes_nothing() {
    let (old, new) = (Named::start("old").await, Named::start("new").await);
    let tap = serving::file("proxy-mistakes.jsonl");
    let tap = tap.to_str().unwrap();
    let good = format!("to = [\"{}\"]\ntap = \"{tap}\"\n", old.address);
    let proxy = Proxy::start("mistakes", &good);
    let channel = channel_to(&proxy).await;
    let before = proxy.flags();
    // Each with changes that would come into force if they stood alone.
    let changes = format!("rate = 1\nconcurrency = 1\nto = [\"{}\"]\ntap = \"{tap}\"\n", new.address);
    let path = proxy.settings();
    for (invalid, expected) in [
        ("slow_call = ", format!("{path}:5: ")),
        ("slow_cal = \"1s\"", format!("{path}:5: unknown setting \"slow_cal\"; did you mean slow_call?")),
        ("slow_call = \"soon\"", format!("{path}:5: slow_call: ")),
        ("tap_filter = [\n  \"status=odd\",\n]", format!("{path}:5: tap_filter: ")),
        ("deadline_max = \"9000h\"", format!("{path}:5: deadline_max: ")),
        ("header = [\"no colon\"]", format!("{path}:5: header: ")),
        ("\n[limits]\ncalls_max = 0", format!("{path}:7: limits.calls_max: ")),
        ("\n[limits]\nconnections_max = \"many\"", format!("{path}:7: limits.connections_max: ")),
    ] {
        let said = proxy.reload(&format!("{changes}{invalid}\n"), "not reloaded, nothing was changed: ");
        // The start has a line of its own.
        let said: Vec<_> = said.into_iter().filter(|line| !line.contains("INFO  listening")).collect();
        let last = said.last().unwrap();
        assert!(last.contains(&expected), "{invalid}: {last}");
        assert_eq!((said.len(), proxy.flags()), (1, before.clone()), "{invalid}: {said:?}");
        assert_eq!(soon(who(&channel)).await.unwrap(), "old", "{invalid}");
    }
    for (to, expected) in [
        ("127.0.0.1:1?wire=soap", "1: to: "),
        ("127.0.0.1:1?retries=1\", \"127.0.0.1:2?retries=2", "all servers must have the same"),
        ("file:nowhere.json", "a registry lists servers by service"),
    ] {
        let text = format!("to = [\"{to}\"]\nrate = 1\ntap = \"{tap}\"\n");
        let said = proxy.reload(&text, "not reloaded, nothing was changed: ");
        let last = said.last().unwrap();
        assert!(last.contains(&format!("{path}:1: to: ")) && last.contains(expected), "{to}: {last}");
        assert_eq!(proxy.flags(), before, "{to}");
        assert_eq!(soon(who(&channel)).await.unwrap(), "old", "{to}");
    }
    std::fs::remove_file(path).unwrap();
    let said = proxy.reload(&good, "reloaded: nothing has changed");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(new.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_headers_hold_for_the_next_call() {
    let server = Named::start("server").await;
    let settings = |more: &str| format!("to = [\"{}\"]\n{more}\n", server.address);
    let proxy = Proxy::start("limits", &settings(""));
    let channel = channel_to(&proxy).await;
    let holding = tokio::spawn({
        let channel = channel.clone();
        async move { hold(&channel).await }
    });
    until(|| server.held() == 1).await;

    // A call that began without a limit counts in it.
    proxy.reload(&settings("concurrency = 1"), "concurrency is 1 now");
    let status = failed(soon(who(&channel)).await);
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().starts_with("1 calls are running"), "{status}");
    assert_eq!(proxy.flag("concurrency"), "1");
    proxy.reload(&settings("concurrency = 2"), "concurrency is 2 now");
    assert_eq!(soon(who(&channel)).await.unwrap(), "server");
    proxy.reload(&settings(""), "concurrency is not set now");
    assert_eq!(proxy.flag("concurrency"), "0");

    proxy.reload(&settings("rate = 1"), "rate is 1 now");
    let begun = Instant::now();
    let status = loop {
        // Two of them come within a second.
        if let Err(status) = soon(who(&channel)).await {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().starts_with("more than 1 calls a second of one address"), "{status}");
    proxy.reload(&settings(""), "rate is not set now");
    assert_eq!(soon(who(&channel)).await.unwrap(), "server");

    proxy.reload(&settings("deadline_max = \"50ms\""), "deadline_max is 50ms now");
    let status = failed(soon(hold(&channel)).await);
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    // That which was there before has no deadline.
    until(|| server.held() == 1).await;
    server.release();
    assert_eq!(soon(holding).await.unwrap().unwrap(), "server");
    proxy.reload(&settings(""), "deadline_max is not set now");

    let secret = "header = [\"x-from: , secret\"]";
    let said = proxy.reload(&settings(secret), "header has changed");
    assert_eq!(soon(who(&channel)).await.unwrap(), "server, secret");
    proxy.reload(&settings(""), "header has changed");
    assert_eq!(soon(who(&channel)).await.unwrap(), "server");
    let said = format!("{said:?}{}", proxy.stop());
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tap_shows_the_next_call_by_its_new_rules() {
    let server = Named::start("server").await;
    let tap = serving::file("proxy-reload.jsonl");
    let settings =
        |more: &str| format!("to = [\"{}\"]\ntap = \"{}\"\n{more}\n", server.address, tap.to_str().unwrap());
    let proxy = Proxy::start("tap", &settings("tap_filter = [\"*/Hold\"]\ntap_redact = [\"x-mine\"]"));
    let channel = channel_to(&proxy).await;
    let holding = tokio::spawn({
        let channel = channel.clone();
        async move { hold(&channel).await }
    });
    until(|| server.held() == 1).await;
    soon(who(&channel)).await.unwrap();
    proxy.reload(&settings("tap_filter = [\"*/Who\"]"), "tap_redact has changed");
    // What began under the old rules is shown by them.
    server.release();
    soon(holding).await.unwrap().unwrap();
    soon(who(&channel)).await.unwrap();
    // A new `tap` file and its rules wait for the next start: this one is still redacted by the old rules.
    let other = format!("to = [\"{}\"]\ntap = \"other.jsonl\"\n", server.address);
    let said = proxy.reload(&other, "tap_filter changed: it takes effect with the next start");
    assert!(said.iter().any(|line| line.contains("tap changed: it takes effect with")), "{said:?}");
    server.release();
    soon(hold(&channel)).await.unwrap();
    proxy.stop();
    let shown = lines(&tap);
    let shown: Vec<_> = shown.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(shown, ["test.Named/Hold", "test.Named/Who"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_start_is_named_until_it_has_one() {
    let server = Named::start("server").await;
    let settings = |more: &str| format!("to = [\"{}\"]\n{more}\n", server.address);
    let proxy = Proxy::start("start", &settings("workers = 1"));
    let waiting = "workers changed: it takes effect with the next start";
    for _ in 0..2 {
        let said = proxy.reload(&settings("workers = 2\nrate = 9\nspin_us = 0"), waiting);
        let spin = "spin_us changed: it takes effect with the next start";
        assert!(said.iter().any(|line| line.contains(spin)), "{said:?}");
        assert_eq!(proxy.flag("rate"), "9");
    }
    let said = proxy.reload(&settings("workers = 1\nrate = 9"), "reloaded: ");
    assert_eq!(said, ["reloaded: nothing has changed"]);
}

#[test]
fn settings_that_are_reloaded_are_marked_and_documented() {
    let output = serving::switchboard().args(["config", "default", "--proxy"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut marked = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.ends_with("(reloaded with SIGHUP)") {
            let setting = lines.next().unwrap().trim_start_matches("# ");
            marked.push(setting.split(' ').next().unwrap().to_owned());
        }
    }
    marked.sort_unstable();
    let wanted = [
        "access_log",
        "concurrency",
        "connections_max",
        "deadline_max",
        "header",
        "memory_bytes_max",
        "rate",
        "server_calls_max",
        "slow_call",
        "tap_filter",
        "tap_redact",
        "tap_undecoded",
        "to",
    ];
    assert_eq!(marked, wanted);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Reload")).unwrap();
    for name in marked {
        assert!(section.contains(&format!("`{name}`")) || section.contains(&format!(".{name}`")), "{name}");
    }
}
