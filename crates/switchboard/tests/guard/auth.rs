//! Authentication and rules, on every wire.

use super::*;
use std::sync::Mutex;
use switchboard::{
    Call, Code, Layer, Next, Reply,
    auth::{self, ApiKeys, Basic, Caller, Checked, Jwt, Signatures, Tokens, sign},
    guard::Rule,
    layer::BoxFuture,
};

/// Records the caller of each call, in a layer.
#[derive(Clone, Default)]
struct Who(Arc<Mutex<Option<Caller>>>);

impl Layer for Who {
    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        *self.0.lock().unwrap() = call.cx().caller().cloned();
        next.call(call)
    }
}

impl Who {
    fn take(&self) -> String {
        self.0.lock().unwrap().take().map_or("none".into(), |caller| caller.name)
    }
}

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn server(who: &Who) -> Server {
    let session = auth::from_fn("session", |credentials| {
        let Some(session) = credentials.metadata().text("x-session").map(str::to_owned) else {
            return Checked::Absent;
        };
        Checked::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            match session.as_str() {
                "open-sesame" => Ok(Arc::new(Caller::new("ali"))),
                _ => Err(Status::unauthenticated("no such session")),
            }
        }))
    });
    Server::new()
        .auth(Jwt::secret(SECRET).unwrap())
        .auth(Tokens::default().token("t0ken", Caller::new("alice").role("admin")))
        .auth(ApiKeys::default().key("k3y", Caller::new("bob")))
        .auth(Basic::default().user("carol", "pass:word", Caller::new("carol")))
        .auth(Signatures::default().key("one", b"shared", Caller::new("dave")))
        .auth(session)
        .rule(Rule::methods("test.Probe/Fail").public())
        .rule(Rule::methods("test.Probe/Mir*").roles(["admin"]))
        .rule(Rule::methods("test.Probe/Hang").deny())
        .rule(Rule::methods("test.Probe/Relay").addresses(["192.0.2.0/24"]))
        .layer(who.clone())
}

/// A token for `sub` until the year 2286.
fn jwt(sub: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let claims = format!(r#"{{"sub":"{sub}","exp":9999999999}}"#);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", part(r#"{"alg":"HS256"}"#), part(&claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, signed.as_bytes())))
}

#[tokio::test]
async fn credentials_are_known_on_every_wire() {
    let who = Who::default();
    let (running, _) = start(server(&who)).await;
    let jwt = format!("Bearer {}", jwt("eve"));
    for client in Client::each(&running).await {
        let wire = client.wire;
        for (name, value, expected) in [
            ("authorization", "Bearer t0ken", Ok("alice")),
            ("authorization", "bearer  t0ken", Ok("alice")),
            ("authorization", "Basic Y2Fyb2w6cGFzczp3b3Jk", Ok("carol")),
            ("authorization", &jwt, Ok("eve")),
            ("x-api-key", "k3y", Ok("bob")),
            ("x-session", "open-sesame", Ok("ali")),
            ("x-other", "x", Err("takes no calls without credentials")),
            ("authorization", "Bearer token", Err("the token is not valid")),
            ("authorization", "Bearer a.b.c", Err("the token is not a JWT")),
            ("authorization", "Basic Y2Fyb2w6cGFzcw==", Err("the name or the password is wrong")),
            ("authorization", "Basic !", Err("the name or the password is wrong")),
            ("authorization", "Digest x", Err("takes no calls without credentials")),
            ("x-api-key", "key", Err("the API key is not valid")),
            ("x-session", "close-sesame", Err("no such session")),
        ] {
            // In the text wire of WebSockets calls have no metadata of their own.
            if wire.starts_with("ws") {
                continue;
            }
            let echo = client.call::<Vec<u8>>(&ECHO, &[1u8, 2].to_vec()).meta(name, value.to_owned());
            match (soon(echo).await, expected) {
                (Ok(_), Ok(expected)) => assert_eq!(who.take(), expected, "{wire}"),
                (Err(status), Err(expected)) => {
                    assert_eq!(status.code(), Code::Unauthenticated, "{wire}: {status}");
                    assert!(status.message().contains(expected), "{wire} {value}: {status}");
                    assert_eq!(who.take(), "none", "no layer sees the call");
                }
                (result, _) => panic!("{wire} {name}: {value}: {result:?}"),
            }
        }
        let status = failed(client.echo().await);
        assert_eq!(status.code(), Code::Unauthenticated, "{wire}: {status}");
    }
}

#[tokio::test]
async fn rules_say_who_may_call_which_method() {
    let who = Who::default();
    let (running, seen) = start(server(&who)).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let status = failed(ask::<_, ()>(&channel, &FAIL, &"public").await);
    assert_eq!((status.code(), who.take()), (Code::NotFound, "none".into()));
    // Known callers are known to public methods too.
    let fail = call::<_, ()>(&channel, &FAIL, &"public").meta("x-api-key", "k3y");
    assert_eq!((failed(fail.await).code(), who.take()), (Code::NotFound, "bob".into()));
    for (method, key, value, expected) in [
        (&MIRROR, "authorization", "Bearer t0ken", Ok(())),
        (&MIRROR, "x-api-key", "k3y", Err((Code::PermissionDenied, "this caller may not"))),
        (&MIRROR, "x-other", "k3y", Err((Code::Unauthenticated, "without credentials"))),
        (&HANG, "authorization", "Bearer t0ken", Err((Code::PermissionDenied, "denies all calls"))),
        (&RELAY, "authorization", "Bearer t0ken", Err((Code::PermissionDenied, "from this address"))),
    ] {
        let call = channel.unary(method, Codec::Postcard, Ok(vec![1u8]), |_, _| Ok(()));
        match (soon(call.meta(key, value)).await, expected) {
            (Ok(_), Ok(())) => {}
            (Err(status), Err((code, text))) => {
                assert!(status.code() == code && status.message().contains(text), "{status}");
            }
            (result, _) => panic!("{}: {result:?}", method.path),
        }
    }
    assert_eq!(seen.hanging(), 0);
    // Streams.
    let mut counted = count(&channel, 2, 1).meta("x-api-key", "k3y").await.unwrap();
    assert!(counted.next().await.unwrap().is_some());
    assert_eq!(who.take(), "bob");
    let refused = async { count(&channel, 2, 1).await?.next().await };
    assert_eq!(failed(refused.await).code(), Code::Unauthenticated);
}

#[tokio::test]
async fn signatures_protect_the_message_and_are_used_once() {
    let who = Who::default();
    let (running, _) = start(server(&who)).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let message = vec![7u8; 2000];
    let encoded = serde::encode(&Blob(message.clone()), Codec::Postcard).unwrap();
    let echo = |signature: &str, compression| {
        let call = call::<_, Vec<u8>>(&channel, &ECHO, &Blob(message.clone()));
        call.meta("authorization", signature.to_owned()).compression(compression)
    };
    for compression in [switchboard::Compression::None, switchboard::Compression::Zstd] {
        let signature = sign("one", b"shared", "test.Probe/Echo", &encoded);
        echo(&signature, compression).await.unwrap();
        assert_eq!(who.take(), "dave");
        let status = failed(echo(&signature, compression).await);
        assert!(status.message().contains("used before"), "{status}");
    }
    for signature in [
        sign("one", b"other", "test.Probe/Echo", &encoded),
        sign("two", b"shared", "test.Probe/Echo", &encoded),
        sign("one", b"shared", "test.Probe/Fail", &encoded),
        sign("one", b"shared", "test.Probe/Echo", b"other"),
    ] {
        let status = failed(echo(&signature, switchboard::Compression::None).await);
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "the signature is wrong"));
    }
}

#[tokio::test]
async fn channels_bring_their_credentials() {
    let who = Who::default();
    let (running, _) = start(server(&who)).await;
    for options in ["", "?wire=grpc", "?wire=connect&http=1", "?wire=jsonrpc"] {
        let url = running.url() + options;
        let codec = if options.is_empty() { Codec::Postcard } else { Codec::Json };
        for (builder, expected) in [
            (Channel::builder(&url).token("t0ken"), "alice"),
            (Channel::builder(&url).basic("carol", "pass:word"), "carol"),
            (Channel::builder(&url).meta("x-api-key", "k3y"), "bob"),
        ] {
            assert!(!format!("{builder:?}").contains("t0ken"), "{builder:?}");
            let channel = builder.connect().await.unwrap();
            let client = Client { wire: options, codec, channel };
            client.echo().await.unwrap();
            assert_eq!(who.take(), expected, "{options}");
        }
    }
    let error = Channel::builder(&running.url()).token("a\nb").lazy().err().unwrap();
    assert!(error.code() == Code::InvalidArgument && !error.message().contains("a\nb"), "{error}");
}

#[tokio::test]
async fn denied_addresses_are_closed_at_once() {
    for (server, served) in [
        (Server::new().deny_addresses(["127.0.0.0/8"]), false),
        (Server::new().allow_addresses(["10.0.0.0/8"]), false),
        (Server::new().allow_addresses(["127.0.0.1", "::1"]), true),
    ] {
        let (running, _) = start(server).await;
        let channel = Channel::builder(&running.url()).lazy().unwrap();
        let call = channel.unary(&MIRROR, Codec::Postcard, Ok(vec![1u8]), |_, _| Ok(()));
        let result = soon(call.timeout(std::time::Duration::from_secs(2))).await;
        assert_eq!(result.is_ok(), served, "{result:?}");
    }
    let error = config_error(Server::new().deny_addresses(["localhost"]).start().await);
    assert!(error.contains("is not a network"), "{error}");
}

#[tokio::test]
async fn standard_services_are_closed_with_the_others() {
    let who = Who::default();
    let closed = Server::new().auth(Tokens::default().token("t0ken", Caller::new("alice")));
    for (server, closed) in [
        (Server::new(), false),
        (closed, true),
        // It has a public method.
        (server(&who), false),
    ] {
        let (running, _) = start(server).await;
        let address = running.url().replace("tcp://", "");
        for (path, refused) in [
            ("grpc.health.v1.Health/Check", false),
            ("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", closed),
        ] {
            let answer = post(&address, path).await;
            assert_eq!(answer.contains("unauthenticated"), refused, "{path}: {answer}");
        }
    }
}

/// Returns the response to a Connect call with an empty message, or a stream of them.
async fn post(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (kind, body) = match path.contains("Check") {
        true => ("application/json", &b"{}"[..]),
        false => ("application/connect+json", &b"\0\0\0\0\x02{}"[..]),
    };
    let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    io.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(io.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn refusals_and_hints_are_for_callers_without_credentials_on_every_wire() {
    let (running, _) = start(server(&Who::default())).await;
    for client in Client::each(&running).await {
        let wire = client.wire;
        let status = failed(client.echo().await);
        let hint = "send authorization: Bearer, or metadata x-api-key, or authorization: Basic, or \
            authorization: Switchboard-HMAC";
        assert!(status.message().ends_with(hint), "{wire}: {status}");
        for method in [&NOWHERE, &SIBLING] {
            let status = failed(soon(client.call::<Vec<u8>>(method, &[1u8].to_vec())).await);
            // An unknown method is refused like one that exists.
            assert_eq!(status.code(), Code::Unauthenticated, "{wire}: {status}");
            assert!(status.message().ends_with(hint), "{wire}: {status}");
            for hidden in ["Mirror", "Hang", "Count", "Relay"] {
                assert!(!status.message().contains(hidden), "{wire}: {status}");
            }
        }
    }
}

/// Ends every call with a status of its own.
struct Fallback;

impl switchboard::Service for Fallback {
    fn info(&self) -> &'static switchboard::ServiceInfo {
        static INFO: switchboard::ServiceInfo =
            switchboard::ServiceInfo { name: "test.Fallback", methods: &[], descriptor: &[] };
        &INFO
    }

    async fn call(&self, _: Call) -> Result<Reply> {
        Err(Status::aborted("the fallback has the call"))
    }
}

#[tokio::test]
async fn unknown_methods_follow_the_rules_and_are_counted_together() {
    let tokens = || auth::Tokens::default().token("t0ken", Caller::new("alice"));
    let server = Server::new().auth(tokens()).rule(Rule::methods("test.Probe/*").public());
    let (running, _) = start(server.fallback(Fallback, ["test.Nowhere".to_owned()])).await;
    for client in Client::each(&running).await {
        let wire = client.wire;
        let before = counted(&running);
        let call = |method| client.call::<Vec<u8>>(method, &[1u8].to_vec());
        // Every method of the service is public, so its names are no secret.
        let status = failed(soon(call(&SIBLING)).await);
        assert_eq!(status.code(), Code::Unimplemented, "{wire}: {status}");
        let status = failed(soon(call(&NOWHERE)).await);
        assert_eq!(status.code(), Code::Unauthenticated, "{wire}: {status}");
        if wire.ends_with("wire=jsonrpc") && wire.starts_with("ws") {
            // Calls on this wire have no metadata.
            continue;
        }
        let status = failed(soon(call(&NOWHERE).meta("authorization", "Bearer t0ken")).await);
        assert_eq!(status.code(), Code::Aborted, "{wire}: {status}");
        assert!(counted(&running) > before, "{wire}");
    }
    let rows = running.stats().methods.iter().filter(|method| method.name.contains(['*', 'N'])).count();
    assert_eq!(rows, 2, "Note and all unknown methods: {:?}", running.stats().methods);
}

/// Number of calls of methods that no service declares.
fn counted(running: &switchboard::Running) -> u64 {
    let stats = running.stats();
    let others = stats.methods.iter().find(|method| method.name == "*").unwrap();
    others.ended.iter().sum()
}

static SIBLING: switchboard::ClientMethod = switchboard::ClientMethod {
    service: &switchboard::ServiceInfo {
        name: "test.Probe",
        methods: &[switchboard::MethodInfo::new("Nope", switchboard::Kind::Unary)],
        descriptor: &[],
    },
    index: 0,
    path: "test.Probe/Nope",
};

#[tokio::test]
async fn certificates_are_callers() {
    use crate::support::certificates::Authority;
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let who = Who::default();
    let server = Server::new()
        .add(Probe::default())
        .auth(auth::Certificates::default().role("CN=alice", "admin"))
        .rule(Rule::methods("test.Probe/Mirror").roles(["admin"]))
        .layer(who.clone());
    let tls = servers.issue("127.0.0.1").tls().client_roots(clients.ca()).client_optional();
    let running = server.listen_tls("tcp://127.0.0.1:0", tls).start().await.unwrap();
    for (name, expected) in [
        (Some("alice"), None),
        (Some("bob"), Some(Code::PermissionDenied)),
        // An empty subject names no caller, and so it is no credential.
        (Some(""), Some(Code::Unauthenticated)),
        (None, Some(Code::Unauthenticated)),
    ] {
        let mut builder = Channel::builder(&running.url()).ca(servers.ca());
        let files = name.map(|name| {
            clients.issue_with(name, &[], |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
                if name.is_empty() {
                    params.distinguished_name = rcgen::DistinguishedName::new();
                }
            })
        });
        if let Some(files) = &files {
            builder = builder.identity(&files.certificate, &files.key);
        }
        let channel = builder.connect().await.unwrap();
        let result = soon(mirror(&channel, vec![1])).await;
        assert_eq!(result.err().map(|status| status.code()), expected, "{name:?}");
        if name == Some("alice") {
            assert_eq!(who.take(), "CN=alice");
        }
    }
}
