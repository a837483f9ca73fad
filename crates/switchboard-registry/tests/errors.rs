//! Registries whose servers fail: an error response, or a response without a list, does not empty a fleet.
//!
//! The servers here respond as the documentation of each says, so that they can fail in ways that are rare in real
//! ones.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod suite;

use suite::{Fault, fault};

#[cfg(feature = "dns")]
mod dns {
    use super::{Fault, fault, suite};
    use std::{net::UdpSocket, sync::Arc};
    use switchboard_registry::Dns;

    const A: u16 = 1;
    const NS: u16 = 2;
    const SRV: u16 = 33;
    /// Bits of the second byte of flags.
    const RECURSES: u8 = 0x80;
    const TRUNCATED: u8 = 0x02;

    /// The response to queries of each type.
    #[derive(Clone, Copy, Debug)]
    enum Wrong {
        /// This response code, to all queries, or only to those for IPv4 addresses.
        Code(u8),
        CodeToA(u8),
        /// The name has no IPv4 address, and this response code for IPv6.
        CodeAfterA(u8),
        /// A referral to other servers, without an answer.
        Referral,
        /// A truncated response, with no server on TCP.
        Truncated,
    }

    /// One name, with the address 127.0.0.7 and a record for a service.
    fn serve(fault: Fault<Wrong>) -> String {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let query = &buffer[..len];
                let name = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap();
                let kind = u16::from_be_bytes([query[name + 1], query[name + 2]]);
                let fault = *fault.lock().unwrap();
                let code = match fault {
                    Some(Wrong::Code(code)) => code,
                    Some(Wrong::CodeToA(code)) if kind == A => code,
                    Some(Wrong::CodeAfterA(code)) if kind != A => code,
                    _ => 0,
                };
                let record = match kind {
                    A => Some(vec![127, 0, 0, 7]),
                    SRV => Some([&[0, 1, 0, 5, 0, 80, 1][..], b"h", &[4], b"test", &[0]].concat()),
                    _ => None,
                };
                let record = record.filter(|_| fault.is_none());
                let flags = if matches!(fault, Some(Wrong::Truncated)) { TRUNCATED } else { 0 };
                let referral = matches!(fault, Some(Wrong::Referral));
                let mut response = query[..2].to_vec();
                response.extend([0x81 | flags, RECURSES | code, 0, 1]);
                response.extend([0, u8::from(record.is_some()), 0, u8::from(referral), 0, 0]);
                response.extend(&query[12..name + 5]);
                let mut add = |kind: u16, data: &[u8]| {
                    response.extend([0xC0, 12]);
                    response.extend(kind.to_be_bytes());
                    response.extend([0, 1, 0, 0, 0, 1]);
                    response.extend((data.len() as u16).to_be_bytes());
                    response.extend(data);
                };
                if let Some(record) = record {
                    add(kind, &record);
                } else if referral {
                    add(NS, &[2, b'n', b's', 4, b't', b'e', b's', b't', 0]);
                }
                let _ = socket.send_to(&response, from);
            }
        });
        at
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn response_codes_of_failing_servers_are_errors() {
        // FORMERR, SERVFAIL, NOTIMP, REFUSED, NOTAUTH, and an unassigned code.
        let codes = [1, 2, 4, 5, 9, 12];
        let (fault, set) = fault();
        let at = serve(fault);
        let connect = |name| Arc::new(Dns::connect(name, Some(&at), "tcp", suite::believing()).unwrap());
        let mut faults: Vec<_> = codes.map(Wrong::Code).to_vec();
        faults.extend([Wrong::CodeToA(2), Wrong::CodeAfterA(2), Wrong::Referral, Wrong::Truncated]);
        suite::errors_empty_nothing(connect("greeter.test:80"), "demo.Greeter", &faults, &set).await;
        let faults = [Wrong::Code(2), Wrong::Code(5), Wrong::Referral];
        suite::errors_empty_nothing(connect("_greeter._tcp.test"), "demo.Greeter", &faults, &set).await;
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use super::{fault, suite};
    use std::sync::Arc;
    use suite::etcd::{COMPACTED, Wrong, serve};
    use switchboard::Code;
    use switchboard_registry::Etcd;
    use tokio::sync::broadcast;

    #[tokio::test]
    async fn errors_and_canceled_watches_are_no_list() {
        let faults = [
            Wrong::List(Code::Unavailable, "etcdserver: no leader"),
            Wrong::List(Code::Unavailable, "etcdserver: request timed out"),
            Wrong::List(Code::PermissionDenied, "etcdserver: permission denied"),
            Wrong::List(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Wrong::List(Code::InvalidArgument, "etcdserver: user name is empty"),
            Wrong::List(Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
            Wrong::List(Code::ResourceExhausted, "etcdserver: too many requests"),
            Wrong::List(Code::OutOfRange, COMPACTED),
            Wrong::List(Code::NotFound, "etcdserver: key not found"),
            Wrong::NoRevision,
            Wrong::SecondPage,
            Wrong::Watch(Code::Unavailable, "etcdserver: server stopped"),
            Wrong::Watch(Code::PermissionDenied, "etcdserver: permission denied"),
            Wrong::Watch(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Wrong::Canceled(9, COMPACTED),
            Wrong::Canceled(0, "etcdserver: permission denied"),
            Wrong::Ended,
        ];
        let (fault, set) = fault::<Wrong>();
        let (changes, _) = broadcast::channel(8);
        let server = serve("tcp://127.0.0.1:0", fault, changes.clone()).await;
        let registry = Etcd::connect(&server.url(), "", suite::believing()).unwrap();
        suite::errors_empty_nothing(Arc::new(registry), "s", &faults, |fault| {
            set(fault);
            let _ = changes.send(());
        })
        .await;
    }
}

#[cfg(feature = "consul")]
mod consul {
    use super::{fault, suite};
    use std::sync::Arc;
    use suite::http::{HttpResponse, serve};
    use switchboard_registry::{Consul, layout::Style};
    use tokio::{net::TcpListener, task::JoinSet};

    const INDEX: &str = "X-Consul-Index: 7\r\n";

    #[tokio::test]
    async fn responses_without_a_list_are_errors() {
        let faults = [
            (500, INDEX, "rpc error: No cluster leader"),
            (403, "", "ACL not found"),
            (429, "", ""),
            (404, "", "no such page"),
            (200, "", "[]"),
            (200, "X-Consul-Index: 8\r\n", "<html>"),
            (200, "X-Consul-Index: 8\r\n", "null"),
        ];
        let (fault, set) = fault::<(u16, &str, &str)>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, move |request| {
            let well = match request.path.strip_prefix("/v1/kv/") {
                Some(_) => r#"[{"Key":"base/s/tcp@10.0.0.7:80","Value":null}]"#,
                None => {
                    r#"[{"Node":{"Address":"10.0.0.7"},"Service":{"ID":"1","Service":"s","Address":"","Port":80}}]"#
                }
            };
            let (status, head, body) = fault.lock().unwrap().unwrap_or((200, INDEX, well));
            async move { HttpResponse::WithHead(status, head, body.to_owned()) }
        }));
        for style in [Style::Own, Style::Rpcx] {
            let registry = Consul::connect_as(style, &host, "base", None, suite::believing()).unwrap();
            suite::errors_empty_nothing(Arc::new(registry), "s", &faults, &set).await;
        }
    }
}

#[cfg(feature = "nacos")]
mod nacos {
    use super::{fault, suite};
    use std::{sync::Arc, time::Duration};
    use suite::http::{HttpResponse, serve};
    use switchboard_registry::{Nacos, nacos::Settings};
    use tokio::{net::TcpListener, task::JoinSet};

    #[tokio::test]
    async fn responses_without_a_list_are_errors() {
        let faults = [
            (500, "caused: server is DOWN now"),
            (403, "authorization failed!"),
            (404, ""),
            (503, ""),
            (200, "<html>"),
            (200, "{}"),
            (200, "ok"),
            (200, r#"{"code":30000,"message":"server error","data":null}"#),
            (200, r#"{"code":30000,"message":"server error"}"#),
            (200, r#"{"code":0,"message":"success","data":null}"#),
            (200, r#"{"code":0,"message":"success","data":{"name":"s"}}"#),
        ];
        for api in [1, 2] {
            let (fault, set) = fault::<(u16, &str)>();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let host = listener.local_addr().unwrap().to_string();
            let mut server = JoinSet::new();
            server.spawn(serve(listener, move |_| {
                let list = r#"{"name":"s","hosts":[{"ip":"10.0.0.7","port":80,"weight":1.0}]}"#.to_owned();
                let list = if api == 1 { list } else { format!(r#"{{"code":0,"data":{list}}}"#) };
                let wrong = fault.lock().unwrap().map(|(status, body)| (status, body.to_owned()));
                let (status, body) = wrong.unwrap_or((200, list));
                async move { HttpResponse::Whole(status, body) }
            }));
            let settings = Settings { api, poll: Duration::from_millis(20), ..Settings::default() };
            let registry = Nacos::connect(&host, settings, suite::believing()).unwrap();
            suite::errors_empty_nothing(Arc::new(registry), "s", &faults, set).await;
        }
    }
}

#[cfg(feature = "kubernetes")]
mod kubernetes {
    use super::{fault, suite};
    use std::sync::Arc;
    use suite::http::{HttpResponse, serve};
    use switchboard_registry::{Kubernetes, kubernetes::Settings};
    use tokio::{
        net::TcpListener,
        sync::{broadcast, mpsc},
        task::JoinSet,
    };

    const LIST: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},
        "endpoints":[{"addresses":["10.0.0.7"]}],"ports":[{"port":80}]}]}"#;

    #[tokio::test]
    async fn responses_without_a_list_are_errors() {
        let faults = [
            (500, r#"{"kind":"Status","code":500}"#),
            (401, "Unauthorized"),
            (403, "forbidden"),
            (404, "404 page not found"),
            (410, r#"{"kind":"Status","code":410}"#),
            (429, ""),
            (200, "<html>"),
            (200, "{}"),
            (200, r#"{"kind":"Status","metadata":{},"status":"Failure","code":500}"#),
            (200, r#"{"metadata":{"resourceVersion":"8"}}"#),
        ];
        let (fault, set) = fault::<(u16, &str)>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // A watch ends with an error when the server begins to fail.
        let (ends, _) = broadcast::channel::<()>(8);
        let (mut server, watches) = (JoinSet::new(), ends.clone());
        server.spawn(serve(listener, move |request| {
            let wrong = *fault.lock().unwrap();
            let mut ended = watches.subscribe();
            async move {
                match wrong {
                    Some((status, body)) => HttpResponse::Whole(status, body.to_owned()),
                    None if request.option("watch") == "1" => {
                        let (sender, receiver) = mpsc::unbounded_channel();
                        tokio::spawn(async move {
                            let _ = ended.recv().await;
                            sender.send(r#"{"type":"ERROR","object":{"code":410}}"#.to_owned())
                        });
                        HttpResponse::Lines(receiver)
                    }
                    None => HttpResponse::Whole(200, LIST.to_owned()),
                }
            }
        }));
        let settings = Settings {
            namespace: Some("shop".to_owned()),
            account: "/nowhere".into(),
            ..Settings::default()
        };
        let registry = Kubernetes::connect(&url, settings, suite::believing()).unwrap();
        suite::errors_empty_nothing(Arc::new(registry), "demo.Greeter", &faults, |fault| {
            set(fault);
            let _ = ends.send(());
        })
        .await;
    }
}

#[cfg(feature = "redis")]
mod redis {
    use super::{fault, suite};
    use std::sync::Arc;
    use suite::redis::{list, read, subscribed};
    use switchboard_registry::Redis;
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufStream},
        net::{TcpListener, TcpStream},
        sync::broadcast,
        task::JoinSet,
    };

    const VALUE: &str = r#"{"service":"s","id":"1","address":"tcp://10.0.0.7:80"}"#;

    /// Takes every command; a script is the list.
    async fn converse(
        stream: TcpStream,
        fault: super::Fault<&'static str>,
        mut changes: broadcast::Receiver<()>,
    ) -> Option<()> {
        let mut stream = BufStream::new(stream);
        loop {
            tokio::select! {
                ready = stream.fill_buf() => { ready.ok()?; }
                // Notifies readers of a change, so that they read again.
                _ = changes.recv() => {
                    stream.write_all(b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$0\r\n\r\n").await.ok()?;
                    stream.flush().await.ok()?;
                    continue;
                }
            }
            let words = read(&mut stream).await?;
            let wrong = *fault.lock().unwrap();
            let response = match (words[0].to_ascii_uppercase().as_str(), wrong) {
                ("EVALSHA" | "EVAL", Some(wrong)) => wrong.to_owned(),
                ("EVALSHA" | "EVAL", None) => list("1", VALUE),
                ("SUBSCRIBE", _) => subscribed(&words[1]),
                _ => "+OK\r\n".to_owned(),
            };
            stream.write_all(response.as_bytes()).await.ok()?;
            stream.flush().await.ok()?;
        }
    }

    #[tokio::test]
    async fn errors_of_a_script_do_not_empty_the_list() {
        let faults = [
            "-LOADING Redis is loading the dataset in memory\r\n",
            "-MASTERDOWN Link with MASTER is down\r\n",
            "-NOPERM this user has no permissions\r\n",
            "-ERR user_script:3: out of memory\r\n",
            "*0\r\n",
            "$-1\r\n",
            "*1\r\n$3\r\nyes\r\n",
        ];
        let (fault, set) = fault::<&str>();
        let (changes, _) = broadcast::channel(8);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (mut server, changed) = (JoinSet::new(), changes.clone());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, fault.clone(), changed.subscribe()));
            }
        });
        let registry = Redis::connect(&url, "", suite::believing()).unwrap();
        suite::errors_empty_nothing(Arc::new(registry), "s", &faults, |fault| {
            set(fault);
            let _ = changes.send(());
        })
        .await;
    }
}

mod file {
    use super::suite;
    use std::{fs, sync::Arc};
    use switchboard::discover::File;

    #[tokio::test]
    async fn content_without_a_list_is_an_error() {
        let faults: [&[u8]; 7] = [
            b"",
            b"{",
            b"[]",
            b"{}",
            br#"{"instances":null}"#,
            br#"{"instances":[{"id":"1"}]}"#,
            b"\xff\xfe",
        ];
        let folder = suite::Folder::new();
        let path = folder.0.join("instances.json");
        let well = br#"{"instances":[{"service":"s","address":"tcp://10.0.0.7:80"}]}"#;
        let (at, new) = (path.clone(), folder.0.join("new"));
        let set = move |fault: Option<&[u8]>| {
            fs::write(&new, fault.unwrap_or(well)).unwrap();
            fs::rename(&new, &at).unwrap();
        };
        set(None);
        let registry = Arc::new(File::new(path, suite::believing()));
        suite::errors_empty_nothing(registry, "s", &faults, set).await;
    }
}

#[cfg(feature = "embedded")]
mod embedded {
    use super::{Fault, fault, suite};
    use std::{sync::Arc, time::Duration};
    use switchboard::{
        Call, Code, Layer, Next, Reply, Result, Server, Status, discover::Registry, layer::BoxFuture,
    };
    use switchboard_registry::{Embedded, EmbeddedServer};

    struct Failing(Fault<Code>);

    impl Layer for Failing {
        fn name(&self) -> &str {
            "failing"
        }

        fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
            match *self.0.lock().unwrap() {
                None => next.call(call),
                Some(code) => Box::pin(async move { Err(Status::new(code, "it fails")) }),
            }
        }
    }

    #[tokio::test]
    async fn errors_of_the_server_do_not_empty_the_list() {
        let (fault, set) = fault::<Code>();
        let server = Server::new().add(EmbeddedServer::new()).layer(Failing(fault));
        let server = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
        let connect = |ttl| {
            let options = suite::believing().ttl(Duration::from_secs(ttl));
            Arc::new(Embedded::connect(&server.url(), options).unwrap())
        };
        let _lease = connect(600).register(suite::instance("s", 1)).await.unwrap();
        let faults = [Code::Unavailable, Code::NotFound, Code::PermissionDenied];
        suite::errors_empty_nothing(connect(15), "s", &faults, set).await;
    }
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use super::{Fault, fault, suite};
    use std::sync::Arc;
    use suite::zookeeper::{GET_CHILDREN, GET_CHILDREN_2, GET_DATA, body, read, response, welcome};
    use switchboard_registry::ZooKeeper;
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
        sync::broadcast,
        task::JoinSet,
    };

    const VALUE: &[u8] = br#"{"service":"s","id":"1","address":"tcp://10.0.0.7:80"}"#;

    /// Serves one connection until something changes. Reads fail with the code of the fault.
    async fn converse(mut stream: TcpStream, fault: Fault<i32>) -> Option<()> {
        welcome(&mut stream).await?;
        loop {
            let request = read(&mut stream).await?;
            let wrong = *fault.lock().unwrap();
            let (code, body) = match (request.operation, wrong) {
                (GET_DATA | GET_CHILDREN | GET_CHILDREN_2, Some(code)) => (code, Vec::new()),
                (operation, _) => (0, body(operation, "1", VALUE)),
            };
            stream.write_all(&response(request.xid, code, &body)).await.ok()?;
        }
    }

    #[tokio::test]
    async fn error_codes_do_not_empty_the_list() {
        // A system error, a request that cannot be parsed, a timeout, missing rights, a session elsewhere, too many
        // requests.
        let faults = [-1, -5, -7, -102, -118, -127];
        let (fault, set) = fault::<i32>();
        let (ends, _) = broadcast::channel::<()>(8);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (mut server, ended) = (JoinSet::new(), ends.clone());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (fault, mut ended) = (fault.clone(), ended.subscribe());
                connections.spawn(async move {
                    tokio::select! {
                        _ = converse(stream, fault) => {}
                        _ = ended.recv() => {}
                    }
                });
            }
        });
        let registry = ZooKeeper::connect(&host, "", suite::believing());
        suite::errors_empty_nothing(Arc::new(registry), "s", &faults, |fault| {
            set(fault);
            let _ = ends.send(());
        })
        .await;
    }
}
