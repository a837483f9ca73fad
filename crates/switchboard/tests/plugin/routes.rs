//! HTTP paths and services of plugins: they follow the rules of all other calls.

use crate::support::{Probe, echo_of, raw::soon};
use bytes::Bytes;
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};
use switchboard::{
    Channel, Codec, Limit, Running, Server, Status, StopOptions,
    guard::Rate,
    layer,
    plugin::{Plugin, PluginContext, PluginServer, Route, RouteRequest, RouteResponse},
    service::DynService,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A plugin with the service [`Probe`], and a path for each kind of method.
#[derive(Clone, Default)]
struct Paths {
    drained: Arc<AtomicUsize>,
    more: Vec<Route>,
}

impl Plugin for Paths {
    fn name(&self) -> &'static str {
        "paths"
    }

    fn services(&self) -> Vec<DynService> {
        vec![DynService::new(Probe::default())]
    }

    fn routes(&self) -> Vec<Route> {
        let mut routes = vec![
            Route::new("GET", "/hello/{name=names/*}", "test.Probe/Echo", hello).token_in_query("key"),
            Route::new("POST", "/whole", "test.Probe/Mirror", whole),
            Route::new("PUT", "/sum", "test.Probe/Sum", sum),
            Route::new("GET", "/count", "test.Probe/Count", count),
            Route::new("POST", "/chat", "test.Probe/Chat", chat),
            Route::new("GET", "/panic", "test.Probe/Panic", panics),
            Route::new("GET", "/hang", "test.Probe/Hang", |_: RouteRequest| std::future::pending()),
        ];
        routes.extend(self.more.iter().cloned());
        routes
    }

    fn start(&self, _: PluginContext) -> std::io::Result<Arc<dyn PluginServer>> {
        Ok(Arc::new(Ending(self.drained.clone())))
    }
}

struct Ending(Arc<AtomicUsize>);

impl PluginServer for Ending {
    fn drain(&self, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Answer = switchboard::Result<RouteResponse>;

async fn hello(request: RouteRequest) -> Answer {
    let head = &request.head;
    let caller = request.cx.caller().map_or("no caller", |caller| &caller.name);
    let text = format!(
        "{} {} {:?} {:?} {:?} {caller}",
        head.verb,
        head.path,
        head.variables,
        head.parameters,
        head.header("x-color")
    );
    Ok(RouteResponse::text(201, text).header("x-kind", "greeting").header("not a name", "x"))
}

async fn whole(mut request: RouteRequest) -> Answer {
    let body = request.next_piece().await?.unwrap_or_default();
    assert_eq!(request.next_piece().await?, None);
    Ok(RouteResponse::new(200).body(body))
}

async fn sum(mut request: RouteRequest) -> Answer {
    let mut bytes = 0;
    while let Some(piece) = request.next_piece().await? {
        bytes += piece.len();
    }
    Ok(RouteResponse::text(200, bytes.to_string()))
}

async fn count(_: RouteRequest) -> Answer {
    let numbers = futures(["1,", "2,", "3"]);
    Ok(RouteResponse::new(200).pieces(numbers))
}

async fn chat(mut request: RouteRequest) -> Answer {
    let stream = Pieces(Box::pin(async move {
        let piece = request.next_piece().await;
        (request, piece)
    }));
    Ok(RouteResponse::new(200).pieces(stream))
}

async fn panics(_: RouteRequest) -> Answer {
    panic!("a handler that panics")
}

fn futures(pieces: [&'static str; 3]) -> impl futures_core::Stream<Item = switchboard::Result<Bytes>> + Send {
    let pieces = pieces.map(|piece| Bytes::from_static(piece.as_bytes()));
    pieces.into_iter().collect::<switchboard::Receiver<Bytes>>()
}

type Reading =
    std::pin::Pin<Box<dyn Future<Output = (RouteRequest, switchboard::Result<Option<Bytes>>)> + Send>>;

/// The pieces of a request, sent back.
struct Pieces(Reading);

impl futures_core::Stream for Pieces {
    type Item = switchboard::Result<Bytes>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let Poll::Ready((mut request, piece)) = self.0.as_mut().poll(cx) else { return Poll::Pending };
        self.0 = Box::pin(async move {
            let piece = request.next_piece().await;
            (request, piece)
        });
        Poll::Ready(piece.transpose())
    }
}

async fn start(server: Server) -> Running {
    server.listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Sends a request of HTTP/1.0 and returns the response in lower case.
async fn ask(running: &Running, verb: &str, path: &str, headers: &str, body: &str) -> String {
    let url = running.url();
    let mut io = tokio::net::TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap();
    let request = format!(
        "{verb} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    io.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(io.read_to_string(&mut response)).await.unwrap();
    response.to_lowercase()
}

#[track_caller]
fn check(response: &str, status: u16, texts: &[&str]) {
    assert_eq!(response.split(' ').nth(1), Some(&*status.to_string()), "{response}");
    for text in texts {
        assert!(response.contains(text), "{text}: {response}");
    }
}

const BINARY: &str = "content-type: application/octet-stream\r\n";

#[tokio::test]
async fn handlers_get_heads_and_bodies_as_their_methods_have_them() {
    let running = start(Server::new().plugin(Paths::default())).await;
    let response = ask(&running, "GET", "/hello/names/a%2Fb?x=1+2&x=%26", "x-color: red\r\n", "").await;
    let text = r#"get /hello/names/a%2fb ["names/a%2fb"] [("x", "1 2"), ("x", "&")] some("red") no caller"#;
    check(&response, 201, &["x-kind: greeting", "content-type: text/plain", text]);
    check(
        &ask(&running, "POST", "/whole", BINARY, "body").await,
        200,
        &["content-length: 4", "\r\n\r\nbody"],
    );
    let large = "x".repeat(300_000);
    check(&ask(&running, "PUT", "/sum", "", &large).await, 200, &["\r\n\r\n300000"]);
    check(&ask(&running, "GET", "/count", "", "").await, 200, &["\r\n\r\n1,2,3"]);
    let response = ask(&running, "POST", "/chat", BINARY, &large).await;
    assert!(response.ends_with(&format!("\r\n\r\n{large}")), "{} bytes", response.len());
    let response = ask(&running, "HEAD", "/hello/names/a", "", "").await;
    check(&response, 201, &["x-kind: greeting"]);
    assert!(response.ends_with("\r\n\r\n"), "{response}");
}

#[tokio::test]
async fn a_service_of_a_plugin_is_called_like_others() {
    let running = start(Server::new().plugin(Paths::default())).await;
    for wire in ["", "?wire=grpc", "?wire=connect"] {
        let channel = Channel::connect(&format!("{}{wire}", running.url())).await.unwrap();
        assert_eq!(echo_of(&channel, Codec::Json, 10).await.unwrap(), [7; 10], "{wire}");
    }
    let twice = Server::new().plugin(Paths::default()).add(Probe::default()).listen("tcp://127.0.0.1:0");
    let text = twice.start().await.err().unwrap().to_string();
    assert!(text.contains("test.Probe"), "{text}");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_errors() {
    let running = start(Server::new().plugin(Paths::default())).await;
    let response = ask(&running, "GET", "/hello/other/a", "", "").await;
    check(&response, 404, &["available: get /hello/{name=names/*}, post /whole, put /sum"]);
    check(&ask(&running, "DELETE", "/hello/names/a", "", "").await, 405, &["allow: get\r\n"]);
    check(&ask(&running, "GET", "/hello/names/%zz", "", "").await, 400, &["two hex digits"]);
    check(&ask(&running, "GET", "/hello/names/a?x=%f", "", "").await, 400, &["two hex digits"]);
    check(&ask(&running, "GET", "/panic", "", "").await, 500, &["handler panicked"]);
    check(&ask(&running, "GET", "/count", "grpc-timeout: soon\r\n", "").await, 400, &["is not a timeout"]);
    check(&ask(&running, "GET", "/hang", "grpc-timeout: 20m\r\n", "").await, 504, &["deadline"]);
}

#[tokio::test]
async fn a_server_does_not_start_with_an_unclear_path() {
    for (route, rule) in [
        (
            Route::new("GET", "/x", "test.Probe/Ecko", hello),
            "plugin: paths: get /x: unknown method test.probe/ecko",
        ),
        (Route::new("get", "/x", "test.Probe/Echo", hello), "an http method is in upper case"),
        (Route::new("GET", "x", "test.Probe/Echo", hello), "plugin: paths: get x: path x"),
        (Route::new("GET", "/count", "test.Probe/Echo", hello), "get /count is a path of both"),
    ] {
        let paths = Paths { more: vec![route], ..Paths::default() };
        let server = Server::new().plugin(paths).listen("tcp://127.0.0.1:0");
        let text = server.start().await.err().unwrap().to_string().to_lowercase();
        assert!(text.contains(rule), "{rule}: {text}");
    }
}

#[tokio::test]
async fn limits_guards_and_layers_apply() {
    let seen = Arc::new(AtomicUsize::new(0));
    let layered = {
        let seen = seen.clone();
        layer::from_fn("seen", move |call, next| {
            seen.fetch_add(1, Ordering::Relaxed);
            assert!(call.message().is_some() || call.full_name() == "test.Probe/Sum");
            next.call(call)
        })
    };
    let server = Server::new().plugin(Paths::default()).layer(layered);
    let server = server.limit(Limit::MessageBytesMax, 1_000).deadline_max(Duration::from_millis(50));
    let running = start(server.method_concurrency("test.Probe/Sum", 1)).await;
    let large = "x".repeat(1_001);
    let response = ask(&running, "POST", "/whole", BINARY, &large).await;
    check(&response, 413, &["over the limit of 1000 bytes (message_bytes_max"]);
    check(&ask(&running, "GET", "/hang", "", "").await, 504, &["deadline of 50 ms"]);
    // Pieces have no limit of their own.
    check(&ask(&running, "PUT", "/sum", "", &large).await, 200, &["1001"]);
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    let stats = running.stats();
    let sum = stats.methods.iter().find(|method| method.name == "test.Probe/Sum").unwrap();
    assert_eq!((sum.ended.iter().sum::<u64>(), sum.wires[0].wire), (1, "http-json"));

    let rate = Server::new().plugin(Paths::default()).rate(Rate::per_second(0.001).burst(1));
    let running = start(rate).await;
    check(&ask(&running, "GET", "/count", "", "").await, 200, &[]);
    check(&ask(&running, "GET", "/count", "", "").await, 429, &["grpc-retry-pushback-ms"]);
    let refusing =
        Server::new().plugin(Paths::default()).on_connect(|_| Err(Status::permission_denied("no")));
    assert_eq!(ask(&start(refusing).await, "GET", "/count", "", "").await, "");
    let other = Server::new().plugin(Paths::default()).wires(["native", "grpc"]);
    check(&ask(&start(other).await, "GET", "/count", "", "").await, 501, &["http-json"]);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_send_it() {
    let running = start(Server::new().plugin(Paths::default())).await;
    let form = "content-type: text/plain\r\nsec-fetch-site: cross-site\r\norigin: https://evil.example\r\n";
    check(&ask(&running, "POST", "/whole", form, "x").await, 403, &["from a page of another origin"]);
}

#[tokio::test]
async fn paths_are_drained_with_the_server() {
    let paths = Paths::default();
    let running = start(Server::new().plugin(paths.clone())).await;
    let url = running.url();
    let mut io = tokio::net::TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap();
    io.write_all(b"GET /hang HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    soon(poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if running.stats().calls_in_flight == 1 { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
    let stopped = soon(running.stop(StopOptions::new().drain(Duration::from_millis(50)))).await;
    assert_eq!(
        stopped.calls.iter().map(|calls| (&*calls.method, calls.calls)).collect::<Vec<_>>(),
        [("test.Probe/Hang", 1)]
    );
    let mut response = String::new();
    soon(io.read_to_string(&mut response)).await.unwrap();
    check(&response, 503, &["going away"]);
    assert_eq!(paths.drained.load(Ordering::Relaxed), 1);
}
