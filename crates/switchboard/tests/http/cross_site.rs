//! Requests that a page of another site can make a browser send run no method, in any dialect of HTTP.

use crate::raw::{answer, dial};
use base64::Engine as _;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchboard::{
    Call, Cors, Kind, MethodInfo, Reply, Result, Running, Server, Service, ServiceInfo, Status,
};
use tokio::io::AsyncWriteExt;

#[switchboard::service(name = "bank.v1.Bank")]
trait Bank {
    #[switchboard(http(post = "/v1/transfers/{to}"), http(get = "/v1/transfers/{to}:run"))]
    async fn transfer(&self, to: Option<String>, amount: Option<u64>) -> Result<u64>;
    #[switchboard(read_only, http(get = "/v1/balance"))]
    async fn balance(&self) -> Result<u64>;
    async fn upload(&self, amounts: switchboard::Receiver<u64>) -> Result<u64>;
}

#[derive(Clone, Default)]
struct Account(Arc<AtomicU64>);

impl Account {
    fn ran(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Bank for Account {
    async fn transfer(&self, _: Option<String>, _: Option<u64>) -> Result<u64> {
        Ok(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    async fn balance(&self) -> Result<u64> {
        Ok(7)
    }

    async fn upload(&self, mut amounts: switchboard::Receiver<u64>) -> Result<u64> {
        while amounts.next().await?.is_some() {}
        Ok(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

async fn start(change: impl FnOnce(Server) -> Server) -> (Account, Running) {
    let account = Account::default();
    let server = Server::new().add(BankServer::new(account.clone())).add(Teller(account.clone()));
    let server = change(server).listen("tcp://127.0.0.1:0");
    (account, server.start().await.unwrap())
}

/// Headers that a browser adds for a page of another site: to a server on HTTPS or on this machine, to
/// others, and none.
const PAGES: [&str; 3] = [
    "origin: https://evil.example\r\nsec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\ncookie: a=b\r\n",
    "origin: null\r\n",
    "",
];

/// Headers that a page sets without a preflight.
const SIMPLE: [&str; 5] = [
    "",
    "content-type: application/x-www-form-urlencoded\r\n",
    "content-type: multipart/form-data; boundary=x\r\n",
    "content-type: text/plain;charset=UTF-8\r\n",
    "content-type: text/plain\r\naccept: application/json\r\n",
];

/// A POST as a dialect has it.
struct Dialect {
    name: &'static str,
    path: &'static str,
    headers: &'static str,
    body: Vec<u8>,
}

fn envelope(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

/// Counts its calls, in whatever codec they are.
struct Teller(Account);

static TELLER: ServiceInfo = ServiceInfo {
    name: "teller.v1.Teller",
    methods: &[MethodInfo::new("Pay", Kind::Unary)],
    descriptor: &[],
};

impl Service for Teller {
    fn info(&self) -> &'static ServiceInfo {
        &TELLER
    }

    async fn call(&self, _: Call) -> Result<Reply> {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        Err(Status::aborted("counted"))
    }
}

/// A call of `Pay` in the binary protocol of Thrift, without arguments.
fn thrift() -> Vec<u8> {
    let mut message = vec![0x80, 1, 0, 1, 0, 0, 0, 3];
    message.extend(b"Pay\0\0\0\x01\0");
    message
}

fn dialects() -> Vec<Dialect> {
    let name = "/bank.v1.Bank/Transfer";
    let text = base64::engine::general_purpose::STANDARD.encode(envelope(b"{}"));
    let json_rpc = br#"{"jsonrpc":"2.0","id":1,"method":"bank.v1.Bank/Transfer","params":{}}"#;
    let json = "content-type: application/json\r\n";
    [
        ("Connect", name, json, b"{}".to_vec()),
        (
            "Connect with a version",
            name,
            "connect-protocol-version: 1\r\ncontent-type: application/json\r\n",
            b"{}".to_vec(),
        ),
        (
            "Connect stream",
            "/bank.v1.Bank/Upload",
            "content-type: application/connect+json\r\n",
            envelope(b"1"),
        ),
        ("gRPC-Web", name, "content-type: application/grpc-web+json\r\n", envelope(b"{}")),
        ("gRPC-Web text", name, "content-type: application/grpc-web-text+json\r\n", text.into_bytes()),
        ("HTTP/JSON without a body", name, json, vec![]),
        ("HTTP/JSON lines", "/bank.v1.Bank/Upload", json, b"1\n2\n".to_vec()),
        ("HTTP rule", "/v1/transfers/mallory?amount=7", json, vec![]),
        ("HTTP rule with a body", "/v1/transfers/mallory", json, br#"{"amount":7}"#.to_vec()),
        ("baidu's HTTP form", "/Bank/Transfer", json, b"{}".to_vec()),
        ("JSON-RPC", "/rpc", json, json_rpc.to_vec()),
        ("JSON-RPC at the root", "/", json, json_rpc.to_vec()),
        ("JSON-RPC by its header", "/any", "x-jsonrpc-2.0: true\r\n", json_rpc.to_vec()),
        ("rpcx gateway", "/", RPCX, b"{}".to_vec()),
        ("rpcx gateway by path", "/bank.v1.Bank", RPCX_METHOD, b"{}".to_vec()),
        ("Thrift over HTTP", "/any", "content-type: application/x-thrift\r\n", thrift()),
    ]
    .map(|(name, path, headers, body)| Dialect { name, path, headers, body })
    .into()
}

const RPCX: &str =
    "x-rpcx-servicepath: bank.v1.Bank\r\nx-rpcx-servicemethod: Transfer\r\nx-rpcx-serializetype: 1\r\n";
const RPCX_METHOD: &str = "x-rpcx-servicemethod: Transfer\r\nx-rpcx-serializetype: 1\r\n";

impl Dialect {
    /// The call with these headers instead of the dialect's own.
    async fn send(&self, running: &Running, headers: &str) -> String {
        let Dialect { path, body, .. } = self;
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
        let mut stream = dial(running).await;
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let (head, body) = answer(&mut stream).await;
        head + &String::from_utf8_lossy(&body)
    }
}

#[tokio::test]
async fn simple_posts_run_no_method_in_any_dialect() {
    let (account, running) = start(|server| server).await;
    for dialect in dialects() {
        let before = account.ran();
        let answered = dialect.send(&running, dialect.headers).await;
        assert_eq!(account.ran(), before + 1, "{} is spoken: {answered}", dialect.name);
        for (page, simple) in PAGES.iter().flat_map(|page| SIMPLE.map(|simple| (page, simple))) {
            let answered = dialect.send(&running, &format!("{page}{simple}")).await;
            let what = format!("{}, {page:?} {simple:?}: {answered}", dialect.name);
            assert_eq!(account.ran(), before + 1, "{what}");
            let status = if page.is_empty() { "http/1.1 415 " } else { "http/1.1 403 " };
            assert!(answered.starts_with(status), "{what}");
        }
    }
}

#[tokio::test]
async fn simple_posts_run_no_method_on_http2() {
    let (account, running) = start(|server| server).await;
    let (sender, connection) = h2::client::handshake(dial(&running).await).await.unwrap();
    tokio::spawn(connection);
    for (kind, origin) in [
        ("application/grpc+json", ""),
        ("", "https://evil.example"),
        ("text/plain", "https://evil.example"),
        ("text/plain", ""),
        ("multipart/form-data", "null"),
        ("", ""),
    ] {
        let mut request = http::Request::post("http://localhost/bank.v1.Bank/Transfer");
        for (name, value) in [("content-type", kind), ("origin", origin)] {
            request = if value.is_empty() { request } else { request.header(name, value) };
        }
        let mut sender = sender.clone().ready().await.unwrap();
        let (answered, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        // The server may reset the stream of a request that it does not read.
        let _ = body.send_data(Bytes::from(envelope(b"{}")), true);
        let status = answered.await.unwrap().status();
        let expected = match (kind, origin) {
            ("application/grpc+json", _) => 200,
            (_, "") => 415,
            _ => 403,
        };
        assert_eq!(status, expected, "{kind:?} {origin:?}");
    }
    assert_eq!(account.ran(), 1, "gRPC alone");
}

async fn get(running: &Running, path: &str, headers: &str) -> String {
    let mut stream = dial(running).await;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").as_bytes())
        .await
        .unwrap();
    let (head, body) = answer(&mut stream).await;
    head + &String::from_utf8_lossy(&body)
}

#[tokio::test]
async fn reads_run_only_methods_without_side_effects() {
    let (account, running) = start(|server| server).await;
    let connect = "?connect=v1&encoding=json&message=%7B%7D";
    for page in PAGES {
        for path in ["/v1/balance".to_owned(), format!("/bank.v1.Bank/Balance{connect}")] {
            let answered = get(&running, &path, page).await;
            assert!(answered.starts_with("http/1.1 200 ") && answered.ends_with('7'), "{path}: {answered}");
        }
        let answered = get(&running, &format!("/bank.v1.Bank/Transfer{connect}"), page).await;
        assert!(answered.starts_with("http/1.1 405 "), "{answered}");
        for verb in ["GET", "HEAD"] {
            let head = format!(
                "{verb} /v1/transfers/mallory:run?amount=7 HTTP/1.1\r\nhost: localhost\r\n{page}\r\n"
            );
            let mut stream = dial(&running).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut status = [0; 13];
            tokio::io::AsyncReadExt::read_exact(&mut stream, &mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 403 ", "{verb} {page:?}");
        }
    }
    assert_eq!(account.ran(), 0);
    for deliberate in ["x-requested-with: XMLHttpRequest\r\n", "sec-fetch-site: same-origin\r\n"] {
        let answered = get(&running, "/v1/transfers/ada:run?amount=7", deliberate).await;
        assert!(answered.starts_with("http/1.1 200 "), "{answered}");
    }
    assert_eq!(account.ran(), 2);
}

#[tokio::test]
async fn pages_of_the_server_and_of_allowed_origins_may_call() {
    let (account, running) = start(|server| server.cors(Cors::new().origin("https://app.example"))).await;
    let bare = &dialects()[5];
    for page in [
        "origin: http://localhost\r\n",
        "origin: https://app.example\r\nsec-fetch-site: cross-site\r\n",
        "sec-fetch-site: same-origin\r\n",
    ] {
        let answered = bare.send(&running, page).await;
        assert!(answered.starts_with("http/1.1 200 "), "{page}: {answered}");
    }
    assert_eq!(account.ran(), 3);
    let answered = bare.send(&running, "origin: https://other.example\r\n").await;
    assert!(answered.starts_with("http/1.1 403 ") && account.ran() == 3, "{answered}");
}

#[tokio::test]
async fn pages_of_other_sites_open_no_websocket() {
    let (_, running) = start(|server| server).await;
    let handshake = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for path in ["/", "/bank.v1.Bank/Transfer", "/v1/transfers/mallory:run", "/_rpcx_"] {
        for protocol in ["", "sec-websocket-protocol: swb.1\r\n", "sec-websocket-protocol: jsonrpc\r\n"] {
            for page in &PAGES[..2] {
                let answered = get(&running, path, &format!("{handshake}{protocol}{page}")).await;
                assert!(answered.starts_with("http/1.1 403 "), "{path} {protocol}: {answered}");
            }
        }
    }
    let answered = get(&running, "/", handshake).await;
    assert!(answered.starts_with("http/1.1 101 "), "callers that are no browsers: {answered}");
}

#[tokio::test]
async fn pages_whose_domain_points_here_reach_nothing() {
    let (account, running) = start(|server| server).await;
    let page = "accept-language: en\r\n";
    let ask = async |running: &Running, path: &str, host: &str, headers: &str| {
        let mut stream = dial(running).await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let (head, body) = answer(&mut stream).await;
        head + &String::from_utf8_lossy(&body)
    };
    let handshake = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\norigin: http://evil.example:80\r\n";
    for (path, headers) in [("/v1/balance", page), ("/openapi.json", page), ("/", handshake)] {
        let answered = ask(&running, path, "evil.example:80", headers).await;
        assert!(
            answered.starts_with("http/1.1 421 ") && answered.contains("Server::host"),
            "{path}: {answered}"
        );
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:1", "app.localhost"] {
        let answered = ask(&running, "/v1/balance", host, page).await;
        assert!(answered.starts_with("http/1.1 200 "), "{host}: {answered}");
    }
    let answered = ask(&running, "/v1/balance", "any.example", "").await;
    assert!(answered.starts_with("http/1.1 200 "), "no browser: {answered}");

    let (_, running) = start(|server| server.host("app.example")).await;
    for (host, headers, status) in [
        ("app.example", page, 200),
        ("App.Example:80", "", 200),
        ("localhost", page, 200),
        ("any.example", "", 421),
    ] {
        let answered = ask(&running, "/v1/balance", host, headers).await;
        assert!(answered.starts_with(&format!("http/1.1 {status} ")), "{host}: {answered}");
    }
    let own = handshake.replace("evil.example:80", "app.example");
    let answered = ask(&running, "/", "app.example", &own).await;
    assert!(answered.starts_with("http/1.1 101 "), "{answered}");
    assert_eq!(account.ran(), 0);
}
