//! Fields that the type of a request does not have: ignored unless the server or the call refuses them.

use crate::rest::{as_json, get, has_status, send, with_body};
use serde::{Deserialize, Serialize};
use serde_json::json;
use switchboard::{Code, Codec, Receiver, Result, Running, Server};

#[derive(Debug, Deserialize, Serialize)]
struct Item {
    price: u32,
}

#[switchboard::service(name = "strict.v1.Orders")]
trait Orders {
    #[switchboard(http(post = "/orders", body = "*"), http(put = "/orders/{customer}", body = "items"))]
    async fn make(&self, customer: String, items: Vec<Item>) -> Result<usize>;

    async fn sum(&self, items: Receiver<Item>) -> Result<u32>;
}

struct Shop;

impl Orders for Shop {
    async fn make(&self, _customer: String, items: Vec<Item>) -> Result<usize> {
        Ok(items.len())
    }

    async fn sum(&self, mut items: Receiver<Item>) -> Result<u32> {
        let mut sum = 0;
        while let Some(item) = items.next().await? {
            sum += item.price;
        }
        Ok(sum)
    }
}

/// As a caller knows the service that mistakes the name of a field.
mod mistaken {
    use serde::{Deserialize, Serialize};
    use switchboard::{Receiver, Result};

    #[derive(Debug, Deserialize, Serialize)]
    pub(super) struct Item {
        pub(super) price: u32,
        pub(super) prise: u32,
    }

    #[switchboard::service(name = "strict.v1.Orders")]
    pub(super) trait Orders {
        async fn make(&self, customer: String, items: Vec<Item>) -> Result<usize>;

        async fn sum(&self, items: Receiver<Item>) -> Result<u32>;
    }
}

const HEADER: &str = "switchboard-strict-fields";
const REFUSED: &str = "unknown field items[1].prise; did you mean price?";

async fn start(server: Server) -> Running {
    server.add(OrdersServer::new(Shop)).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// A request with a header.
fn with_header(request: &[u8], header: &str) -> Vec<u8> {
    let request = String::from_utf8(request.to_vec()).unwrap();
    request.replacen("\r\n", &format!("\r\n{header}\r\n"), 1).into_bytes()
}

#[tokio::test]
async fn requests_of_http_with_unknown_fields() {
    let items = r#"[{"price": 1}, {"price": 2, "prise": 3}]"#;
    let whole = format!(r#"{{"customer": "Ada", "items": {items}}}"#);
    let call =
        format!(r#"{{"jsonrpc": "2.0", "id": 1, "method": "strict.v1.Orders.Make", "params": {whole}}}"#);
    let requests = [
        with_body("POST", "/orders", &whole),
        with_body("PUT", "/orders/Ada", items),
        with_body("POST", "/strict.v1.Orders/Make", &whole),
        with_body("POST", "/rpc", &call),
    ];
    let (lenient, strict) = (start(Server::new()).await, start(Server::new().strict_fields()).await);
    for (running, header, refused) in [
        (&lenient, None, false),
        (&lenient, Some("true"), true),
        (&strict, None, true),
        (&strict, Some("false"), false),
    ] {
        for request in &requests {
            let request = match header {
                Some(value) => with_header(request, &format!("{HEADER}: {value}")),
                None => request.clone(),
            };
            let (head, body) = send(running, &request).await;
            let body = String::from_utf8_lossy(&body).into_owned();
            assert_eq!(body.contains(REFUSED), refused, "{header:?}: {head} {body}");
            let failed = head.starts_with("http/1.1 400") || body.contains("-32602");
            assert_eq!(failed, refused, "{header:?}: {head} {body}");
        }
    }
}

#[tokio::test]
async fn arguments_and_lines_with_unknown_fields() {
    let running = start(Server::new().strict_fields()).await;
    let answered =
        send(&running, &with_body("POST", "/orders", r#"{"custommer": "Ada", "items": []}"#)).await;
    has_status(&answered, 400, "an unknown argument");
    let text = as_json(&answered.1)["message"].as_str().unwrap().to_owned();
    assert!(text.contains("unknown field custommer; did you mean customer?"), "{text}");
    let lines = "{\"price\": 1}\n{\"price\": 2, \"tax\": 3}\n";
    let answered = send(&running, &with_body("POST", "/strict.v1.Orders/Sum", lines)).await;
    has_status(&answered, 400, "a line with an unknown field");
    let text = as_json(&answered.1)["message"].as_str().unwrap().to_owned();
    assert!(text.ends_with("unknown field tax"), "{text}");
    let lines = "{\"price\": 1}\n{\"price\": 2}\n";
    let answered = send(&running, &with_body("POST", "/strict.v1.Orders/Sum", lines)).await;
    assert_eq!(as_json(&answered.1), json!(3));
    let answered = get(&running, "/openapi.json").await;
    has_status(&answered, 200, "the description");
}

#[tokio::test]
async fn a_call_says_true_or_false() {
    let running = start(Server::new()).await;
    let request = with_body("POST", "/orders", r#"{"customer": "Ada", "items": []}"#);
    let answered = send(&running, &with_header(&request, "switchboard-strict-fields: yes")).await;
    has_status(&answered, 400, "another word");
    let text = as_json(&answered.1)["message"].as_str().unwrap().to_owned();
    assert_eq!(text, "switchboard-strict-fields is \"yes\"; it is true or false");
}

#[tokio::test]
async fn unknown_fields_are_refused_on_every_wire_with_named_fields() {
    let (lenient, strict) = (start(Server::new()).await, start(Server::new().strict_fields()).await);
    for options in [
        "native json",
        "native msgpack",
        "?wire=grpc&codec=json",
        "?wire=grpc-web&codec=json",
        "?wire=connect&codec=json",
        "?wire=jsonrpc",
        "?wire=rpcx&codec=json",
        "?wire=rpcx&codec=msgpack",
        "?wire=erpc&framing=json&codec=json",
        "?wire=baidu_std&codec=json",
    ] {
        let make = async |running: &Running, choice: Option<&'static str>| {
            let connect = async |options| {
                let url = format!("{}{options}", running.url());
                mistaken::OrdersClient::connect(&url).await.unwrap()
            };
            let orders = match options {
                "native json" => connect("").await.with_codec(Codec::Json),
                "native msgpack" => connect("").await.with_codec(Codec::MsgPack),
                options => connect(options).await,
            };
            let items = [1, 2].map(|price| mistaken::Item { price, prise: price });
            let call = orders.make("Ada".to_owned(), items.into());
            let made = match choice {
                Some(choice) => call.meta(HEADER, choice).await,
                None => call.await,
            };
            made.map(|made| *made)
        };
        assert_eq!(make(&lenient, None).await.unwrap(), 2, "{options}");
        let refused = make(&strict, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{options}: {refused}");
        let part = "unknown field items[0].prise; did you mean price?";
        assert!(refused.message().contains(part), "{options}: {refused}");
        assert_eq!(make(&strict, Some("false")).await.unwrap(), 2, "{options}");
        assert!(make(&lenient, Some("true")).await.is_err(), "{options}");
    }
    // Fields that are written without their names have none that are unknown.
    let orders = OrdersClient::connect(&strict.url()).await.unwrap();
    assert_eq!(*orders.make("Ada".to_owned(), vec![Item { price: 1 }]).await.unwrap(), 1);
}
