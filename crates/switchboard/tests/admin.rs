//! The admin listener: what its pages show, in which forms, and whom it answers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;

use serde_json::Value;
use std::{future::IntoFuture, sync::Arc, time::Duration};
use support::{raw::soon, *};
use switchboard::{
    Address, Channel, Flag, Limit, Running, Server,
    admin::{Admin, Page, Table},
    limits::Unit,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A probe with an admin listener, a channel to it, and what its handlers do.
async fn administered(server: Server) -> (Running, Channel, Arc<Seen>) {
    let probe = Probe::default();
    let seen = probe.seen.clone();
    let running = server.add(probe).listen("tcp://127.0.0.1:0").start().await.expect("start");
    let channel = Channel::connect(&running.url()).await.expect("connect");
    (running, channel, seen)
}

fn with_admin() -> Server {
    Server::new().admin("tcp://127.0.0.1:0")
}

/// Status and body of an answer of the admin listener.
async fn ask_admin(running: &Running, head: &str) -> (u16, String) {
    let Some(Address::Tcp(host, port)) = running.admin() else { panic!("an admin listener on TCP") };
    let mut stream = tokio::net::TcpStream::connect((host.as_str(), *port)).await.unwrap();
    stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn page(running: &Running, path: &str) -> (u16, String) {
    ask_admin(running, &format!("GET {path} HTTP/1.1\r\nhost: localhost")).await
}

async fn json(running: &Running, path: &str) -> Value {
    let (status, body) = page(running, path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

#[tokio::test]
async fn every_page_of_the_index_has_three_forms() {
    let (running, channel, _) = administered(with_admin()).await;
    mirror(&channel, vec![1; 10]).await.unwrap();
    let index = json(&running, "/?format=json").await;
    let paths: Vec<_> = index["pages"].as_array().unwrap().iter().map(|page| &page["path"]).collect();
    assert!(paths.len() > 9, "{index}");
    for path in paths {
        let path = path.as_str().unwrap();
        let (status, text) = page(&running, path).await;
        assert_eq!(status, 200, "{path}");
        assert!(!text.is_empty());
        if path != "/metrics" {
            json(&running, &format!("{path}?format=json")).await;
            let html =
                ask_admin(&running, &format!("GET {path} HTTP/1.1\r\nhost: [::1]:9\r\naccept: text/html"))
                    .await;
            assert!(html.1.starts_with("<!doctype html>"), "{path}: {}", html.1);
        }
    }
    assert_eq!(page(&running, "/style.css").await.0, 200);
    assert_eq!(page(&running, "/nothing").await.0, 404);
    assert_eq!(page(&running, "/style.css/../etc").await.0, 404);
}

#[tokio::test]
async fn status_has_percentiles_by_method_and_wire() {
    let (running, channel, _) = administered(with_admin().limit(Limit::CallsMax, 77)).await;
    for _ in 0..5 {
        mirror(&channel, vec![1; 10]).await.unwrap();
    }
    ask::<_, ()>(&channel, &FAIL, &"no").await.unwrap_err();
    soon(async {
        while running.stats().methods[1].times.count() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let status = json(&running, "/status?format=json").await;
    assert_eq!(status["about"]["state"], "serving");
    let mirror = status["methods"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["method"] == "test.Probe/Mirror")
        .unwrap();
    assert_eq!(
        (&mirror["wire"], &mirror["calls"], &mirror["received_bytes"]),
        (&"native".into(), &5.into(), &50.into())
    );
    assert!(mirror["p99_us"].as_f64().unwrap() > 0.0, "{mirror}");
    assert_eq!(status["failures"][0]["code"], "not_found");
    let limits = json(&running, "/limits?format=json").await;
    let calls_max =
        limits["limits"].as_array().unwrap().iter().find(|row| row["limit"] == "calls_max").unwrap();
    assert_eq!((&calls_max["value"], &calls_max["source"]), (&"77".into(), &"server".into()));
    let vars = json(&running, "/vars?format=json&filter=accepted").await;
    assert_eq!(vars["vars"]["switchboard_accepted_total"], 1);
    assert_eq!(vars["vars"].as_object().unwrap().len(), 1);
    let connections = json(&running, "/connections?format=json").await;
    assert_eq!(connections["connections"][0]["protocol"], "native");
}

#[tokio::test]
async fn calls_in_flight_are_shown_with_age_method_and_peer() {
    let (running, channel, seen) = administered(with_admin()).await;
    let http = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    let hang = |channel: &Channel| {
        let channel = channel.clone();
        tokio::spawn(async move {
            let bytes = Ok(bytes::Bytes::new());
            let call =
                channel
                    .unary(&HANG, channel.codec(switchboard::Codec::Postcard), bytes, |_, reply| Ok(reply));
            call.timeout(Duration::from_secs(60)).await.map(drop)
        })
    };
    let hanging = [hang(&channel), hang(&http)];
    seen.until(|seen| seen.hanging() == 2).await;
    // Handlers begin before their calls are listed.
    soon(async {
        while running.stats().calls_in_flight < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let calls = json(&running, "/calls?format=json").await;
    let calls = calls["calls"].as_array().unwrap();
    let mut wires: Vec<_> = calls.iter().map(|call| call["wire"].as_str().unwrap()).collect();
    wires.sort_unstable();
    assert_eq!(wires, ["grpc", "native"]);
    for call in calls {
        assert_eq!((&call["method"], &call["stage"]), (&"test.Probe/Hang".into(), &"handler".into()));
        assert!(call["peer"].as_str().unwrap().starts_with("tcp://127.0.0.1:"), "{call}");
        assert!(
            call["age_ms"].as_f64().unwrap() >= 0.0 && call["left_ms"].as_f64().unwrap() > 1000.0,
            "{call}"
        );
    }
    let connections = json(&running, "/connections?format=json").await;
    for connection in connections["connections"].as_array().unwrap() {
        assert_eq!(connection["waiting"], 1, "{connection}");
    }
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    soon(async {
        while running.stats().calls_in_flight > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(json(&running, "/calls?format=json").await["calls"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn calls_that_the_logs_took_are_shown_afterwards() {
    let (running, channel, _) = administered(with_admin()).await;
    mirror(&channel, vec![1; 10]).await.unwrap();
    let page = json(&running, "/recent?format=json").await;
    assert!(page["calls"].as_array().unwrap().is_empty(), "both logs are off: {page}");
    assert!(page.to_string().contains("/flags/access_log"), "{page}");
    running.set_flag("access_log", "1", "test").unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let http = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    let codec = http.codec(switchboard::Codec::Json);
    let call =
        http.unary(&ECHO, codec, switchboard::codec::serde::encode(&[7u8], codec), |_, bytes| Ok(bytes));
    soon(call.meta("traceparent", trace).into_future()).await.unwrap();
    ask::<_, ()>(&channel, &FAIL, &"no").await.unwrap_err();
    running.set_flag("access_log", "0", "test").unwrap();
    running.set_flag("slow_call", "5ms", "test").unwrap();
    ask::<_, String>(&channel, &BLOCK, &"").await.unwrap();
    mirror(&channel, vec![1; 10]).await.unwrap();
    // A call of HTTP is counted when its answer has gone.
    let all = soon(async {
        loop {
            let page = json(&running, "/recent?format=json").await;
            let calls = page["calls"].as_array().unwrap().clone();
            if calls.len() == 3 {
                return calls;
            }
        }
    })
    .await;
    let by =
        |method: &str| all.iter().find(|call| call["method"] == method).unwrap_or_else(|| panic!("{all:?}"));
    let slow = by("test.Probe/Block");
    assert!(slow["why"] == "slow" && slow["took_us"].as_f64().unwrap() >= 5e3, "{slow}");
    let failed = by("test.Probe/Fail");
    assert_eq!(
        (&failed["code"], &failed["why"], &failed["wire"]),
        (&"not_found".into(), &"sampled".into(), &"native".into())
    );
    let traced = by("test.Probe/Echo");
    assert_eq!(
        (&traced["trace"], &traced["wire"]),
        (&"0af7651916cd43dd8448eb211c80319c".into(), &"grpc".into())
    );
    for (query, method) in [
        ("filter=Fail", "test.Probe/Fail"),
        ("filter=not_found", "test.Probe/Fail"),
        ("filter=0af7651916", "test.Probe/Echo"),
        ("slower=5ms&filter=Block", "test.Probe/Block"),
    ] {
        let page = json(&running, &format!("/recent?format=json&{query}")).await;
        let calls = page["calls"].as_array().unwrap();
        assert!(calls.len() == 1 && calls[0]["method"] == method, "{query}: {page}");
    }
    assert_eq!(crate::page(&running, "/recent?slower=soon").await.0, 400);
}

#[tokio::test]
async fn flags_change_while_the_server_runs() {
    let own = Flag::new("cache_time", Unit::Milliseconds, 500, 0..=60_000, "how long answers are kept");
    let (running, channel, seen) = administered(with_admin().flag(&own)).await;
    let post = |what: &str| format!("POST /flags/{what} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0");
    let (status, body) = ask_admin(&running, &post("cache_time?value=2s&expires=10min&by=alice")).await;
    assert_eq!((status, own.value()), (200, 2000), "{body}");
    let flags = json(&running, "/flags?format=json").await;
    let change = flags["changes"][0]["change"].as_str().unwrap();
    assert!(change.starts_with("cache_time: 500ms to 2s, by alice (tcp://127.0.0.1:"), "{change}");
    let row = flags["flags"].as_array().unwrap().iter().find(|row| row["flag"] == "cache_time").unwrap();
    assert!(row["expires_s"].as_f64().unwrap() > 590.0, "{row}");
    // A limit of the server, in force at once.
    assert_eq!(ask_admin(&running, &post("server_calls_max?value=1")).await.0, 200);
    let hanging = tokio::spawn({
        let channel = channel.clone();
        async move { ask::<_, ()>(&channel, &HANG, &"").await }
    });
    seen.until(|seen| seen.hanging() == 1).await;
    let status = ask::<_, ()>(&channel, &HANG, &"").await.unwrap_err();
    assert!(status.message().contains("server_calls_max"), "{status}");
    hanging.abort();
    for (what, expected) in [
        ("cache_time", "value=VALUE"),
        ("cache_time?value=2", "ms, s"),
        ("cache_time?value=2s&expires=x", "expires"),
        ("cache?value=2s", "flag \"cache\" not found"),
    ] {
        let (status, body) = ask_admin(&running, &post(what)).await;
        assert!(status == 400 && body.contains(expected), "{what}: {status} {body}");
    }
    assert_eq!(own.value(), 2000);
}

#[tokio::test]
async fn strangers_and_foreign_pages_are_refused() {
    let (running, _, _) = administered(with_admin()).await;
    let get = |host: &str| format!("GET /status HTTP/1.1\r\nhost: {host}");
    assert_eq!(ask_admin(&running, &get("evil.example")).await.0, 421);
    let post = "POST /flags/access_log?value=1 HTTP/1.1\r\ncontent-length: 0\r\nhost: localhost";
    assert_eq!(ask_admin(&running, &format!("{post}\r\norigin: https://evil.example")).await.0, 403);
    assert_eq!(ask_admin(&running, &format!("{post}\r\norigin: null")).await.0, 403);
    assert_eq!(ask_admin(&running, &format!("{post}\r\norigin: http://localhost")).await.0, 200);
    assert_eq!(ask_admin(&running, "DELETE /status HTTP/1.1\r\nhost: localhost").await.0, 405);

    let admin = Admin::at("tcp://127.0.0.1:0").token("secret");
    let (running, _, _) = administered(Server::new().admin(admin)).await;
    let get = |more: &str| format!("GET /status HTTP/1.1\r\nhost: some.example{more}");
    assert_eq!(ask_admin(&running, &get("")).await.0, 401);
    assert_eq!(ask_admin(&running, &get("\r\nauthorization: Bearer secreT")).await.0, 401);
    assert_eq!(ask_admin(&running, &get("\r\nauthorization: Bearer secret")).await.0, 200);

    let public = Server::new().add(Probe::default()).listen(memory()).admin("tcp://0.0.0.0:0");
    assert!(public.start().await.err().is_some_and(|error| error.is_config()));
}

#[tokio::test]
async fn pages_of_the_application_are_beside_ours() {
    let admin = Admin::at("tcp://127.0.0.1:0")
        .page("cache", || Page::new("cache").table(Table::facts("cache").fact("entries", 17u64)))
        .page("registry", || Page::new("registry").note("registered at etcd 127.0.0.1:2379"));
    let (running, _, _) = administered(Server::new().admin(admin)).await;
    assert_eq!(json(&running, "/cache?format=json").await["cache"]["entries"], 17);
    assert!(page(&running, "/registry").await.1.contains("etcd"));
    assert!(page(&running, "/").await.1.contains("/cache"));
}

#[tokio::test]
async fn metrics_are_text_or_the_format_of_accept() {
    let (running, channel, _) = administered(with_admin()).await;
    mirror(&channel, vec![1; 10]).await.unwrap();
    let (_, text) = page(&running, "/metrics").await;
    assert!(text.contains("\nswitchboard_calls_total{") && !text.contains("# EOF"), "{text}");
    let accept =
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/openmetrics-text;version=1.0.0";
    assert!(ask_admin(&running, accept).await.1.ends_with("# EOF\n"));
}
