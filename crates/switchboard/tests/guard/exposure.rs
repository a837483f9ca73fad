//! Names, wires, hooks and deadlines: the methods that callers can reach, and for how long.

use super::*;
use crate::concurrency::until;
use std::{sync::Mutex, time::Duration};
use switchboard::{ClientMethod, Code, Kind, MethodInfo, ServiceInfo};

static OLD_INFO: ServiceInfo =
    ServiceInfo { name: "old.Probe", methods: &[MethodInfo::new("Say", Kind::Unary)], descriptor: &[] };
static OLD: ClientMethod = ClientMethod { service: &OLD_INFO, index: 0, path: "old.Probe/Say" };

#[tokio::test]
async fn aliases_are_served_on_every_wire() {
    let (running, _) = start(Server::new().alias("old.Probe/Say", "test.Probe/Echo")).await;
    for client in Client::each(&running).await {
        let said = soon(client.call::<Vec<u8>>(&OLD, &[1u8, 2].to_vec())).await;
        assert_eq!(*said.unwrap(), [1, 2], "{}", client.wire);
        assert_eq!(client.echo().await.unwrap(), [1, 2], "{}", client.wire);
    }
    let server = || Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let error = config_error(server().alias("a.B/C", "test.Probe/Nope").start().await);
    assert!(error.contains("alias: unknown method test.Probe/Nope"), "{error}");
    let error = config_error(server().alias("test.Probe/Hang", "test.Probe/Echo").start().await);
    assert!(error.contains("alias: test.Probe/Hang is taken"), "{error}");
}

#[tokio::test]
async fn hidden_methods_are_unknown_on_every_wire() {
    for server in [
        Server::new().expose(["test.Probe/E*", "test.Probe/Mirror"]).hide(["test.Probe/Mirror"]),
        Server::new()
            .hide(["*F*", "*M*", "*H*", "*Note", "*Wh*", "*R*", "*S*", "*Bl*", "*Pa*", "*C*", "*T*"]),
    ] {
        let (running, _) = start(server).await;
        for client in Client::each(&running).await {
            assert_eq!(client.echo().await.unwrap(), [1, 2], "{}", client.wire);
            let status = failed(soon(client.call::<()>(&FAIL, &"x")).await);
            assert_eq!(status.code(), Code::Unimplemented, "{}: {status}", client.wire);
            assert!(!status.message().contains("Mirror"), "{}: {status}", client.wire);
        }
    }
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let error = config_error(server.expose(["test.Probe/Ecko"]).start().await);
    assert!(error.contains("expose: unknown method"), "{error}");
}

#[tokio::test]
async fn wires_that_are_not_named_are_not_spoken() {
    let server = Server::new().add(Probe::default()).wires(["grpc", "jsonrpc", "native"]);
    let running = server.listen("tcp://127.0.0.1:0?wires=grpc,jsonrpc,connect").start().await.unwrap();
    for (options, codec) in WIRES {
        let enabled = options == "?wire=grpc" || options.ends_with("jsonrpc");
        let outcome = match Client::try_on(&running, options, codec).await {
            Ok(client) => client.echo().await.map(drop),
            Err(status) => Err(status),
        };
        match outcome {
            Ok(()) => assert!(enabled, "{options}"),
            // rpcx has no response before the first request: the connection is closed.
            Err(status) if options == "?wire=rpcx" => {
                assert_eq!(status.code(), Code::Unavailable, "{options}: {status}");
            }
            Err(status) => {
                assert!(!enabled, "{options}: {status}");
                assert_eq!(status.code(), Code::Unimplemented, "{options}: {status}");
                let text = "enabled: grpc, jsonrpc (wires)";
                assert!(status.message().contains(text), "{options}: {status}");
            }
        }
    }
    let stats = running.stats();
    assert!(stats.disabled_wires >= 2, "{stats:?}");
    let wires: Vec<_> = stats.methods.iter().flat_map(|method| &method.wires).map(|wire| wire.wire).collect();
    assert!(!wires.contains(&"native") && !wires.contains(&"rpcx"), "{wires:?}");
    for (server, expected) in [
        (Server::new().wires(["soap"]).listen("tcp://127.0.0.1:0"), "\"soap\" is not a wire"),
        (Server::new().listen("tcp://127.0.0.1:0?wires=native,"), "\"\" is not a wire"),
    ] {
        let error = config_error(server.add(Probe::default()).start().await);
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn hooks_see_connections_come_and_go() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let (begun, ended) = (log.clone(), log.clone());
    let refuses = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let refusing = refuses.clone();
    let server = Server::new()
        .on_connect(move |peer| {
            if refusing.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(Status::unavailable("no more"));
            }
            begun.lock().unwrap().push(format!("{} begins", peer.address));
            Ok(())
        })
        .on_disconnect(move |peer| ended.lock().unwrap().push(format!("{} ends", peer.address)));
    let (running, _) = start(server).await;
    for options in ["", "?wire=grpc"] {
        let channel = Channel::builder(&(running.url() + options)).connections(1).connect().await.unwrap();
        let call = channel.unary(&ECHO, Codec::Json, serde::encode(&[1u8], Codec::Json), |_, _| Ok(()));
        soon(call).await.unwrap();
        drop(channel);
        until(|| log.lock().unwrap().len() == 2).await;
        let seen = std::mem::take(&mut *log.lock().unwrap());
        let peer = seen[0].strip_suffix(" begins").unwrap();
        assert_eq!(seen[1], format!("{peer} ends"));
    }
    refuses.store(true, std::sync::atomic::Ordering::SeqCst);
    let channel = Channel::builder(&running.url()).lazy().unwrap();
    let refused = soon(call::<_, Vec<u8>>(&channel, &ECHO, &[1u8]).timeout(Duration::from_secs(2))).await;
    assert!(refused.is_err());
    assert!(log.lock().unwrap().is_empty());
}

#[tokio::test]
async fn deadlines_are_capped_on_every_wire() {
    let most = Duration::from_millis(50);
    let server =
        Server::new().deadline_max(Duration::from_secs(1000)).method_deadline_max("test.Probe/Ha*", most);
    let (running, seen) = start(server.method_deadline_max("test.Probe/C*", most)).await;
    for client in Client::each(&running).await {
        for timeout in [None, Some(Duration::from_secs(100))] {
            let call = client.call::<()>(&HANG, &"");
            let call = timeout.into_iter().fold(call, switchboard::UnaryCall::timeout);
            let status = failed(soon(call).await);
            assert_eq!(status.code(), Code::DeadlineExceeded, "{}: {status}", client.wire);
            soon(seen.until(|seen| seen.hanging() == 0)).await;
        }
    }
    // Streams that have begun.
    for (options, codec) in [("", Codec::Postcard), ("?wire=grpc", Codec::Json)] {
        let client = Client::on(&running, options, codec).await;
        let (sender, mut receiver) =
            client.channel.bidi::<String, String>(&CHAT, codec, serde::encode, serde::decode).await.unwrap();
        sender.send("a".into()).await.unwrap();
        assert_eq!(receiver.next().await.unwrap().unwrap(), "A");
        assert_eq!(failed(soon(receiver.next()).await).code(), Code::DeadlineExceeded, "{options}");
    }
}

#[tokio::test]
async fn expired_calls_are_not_begun() {
    let (running, seen) = start(Server::new()).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    let status = failed(soon(client.call::<()>(&HANG, &"").timeout(Duration::ZERO)).await);
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(seen.hanging(), 0);
}
