//! HTTP paths of methods of traits.

use crate::{
    raw::{answer, chunk, dial},
    rest::{as_json, get, has_status, send, with_body},
};
use serde_json::{Value, json};
use std::net::IpAddr;
use switchboard::{HttpText, Receiver, Result, Running, Sender, Server, Status, TextKind};
use tokio::io::AsyncWriteExt;

/// A type of the application that text can fill.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct OrderId(u64);

impl HttpText for OrderId {
    const KIND: TextKind = TextKind::Uint64;
}

#[derive(Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Open,
    InTransit,
}

impl HttpText for State {
    const KIND: TextKind = TextKind::String;
}

#[derive(Debug, serde::Deserialize, serde::Serialize)]
struct Order {
    item: String,
    count: u32,
}

/// Another name, whose type only the compiler knows.
type Price = f64;

/// Every method returns its arguments.
#[switchboard::service(name = "shop.v1.Shop")]
trait Shop {
    #[switchboard(read_only, http(get = "/calc/{a}/add/{b}"))]
    async fn add(&self, a: i64, b: i64) -> Result<i64>;

    #[switchboard(read_only, http(get = "/orders/{id}"), http(get = "/customers/{customer}/orders/{id}"))]
    #[switchboard(http(get = "/orders/{id}:peek"))]
    async fn find(&self, id: OrderId, customer: Option<String>, note: Option<char>) -> Result<String>;

    #[switchboard(read_only, http(get = "/orders"))]
    async fn list(
        &self,
        state: Option<State>,
        tags: Vec<String>,
        sizes: Vec<u8>,
        price: Price,
        urgent: Option<bool>,
        r#from: Option<IpAddr>,
    ) -> Result<String>;

    #[switchboard(http(post = "/orders", body = "*"))]
    #[switchboard(http(patch = "/customers/{customer}/orders", body = "*"))]
    async fn make(&self, customer: String, order: Order, tags: Vec<String>) -> Result<String>;

    #[switchboard(http(put = "/orders/{id}", body = "order"))]
    async fn change(&self, id: OrderId, order: Order, urgent: bool, tags: Vec<String>) -> Result<String>;

    #[switchboard(idempotent, http(delete = "/files/{path=**}"))]
    async fn remove(&self, path: String) -> Result<()>;

    #[switchboard(read_only, http(get = "/numbers/{from}"))]
    async fn numbers(&self, from: u32, count: u32, out: Sender<u32>) -> Result<()>;

    #[switchboard(http(post = "/sum", body = "*"))]
    async fn sum(&self, numbers: Receiver<u32>) -> Result<u32>;
}

struct Echo;

impl Shop for Echo {
    async fn add(&self, a: i64, b: i64) -> Result<i64> {
        a.checked_add(b).ok_or_else(|| Status::out_of_range("too much"))
    }

    async fn find(&self, id: OrderId, customer: Option<String>, note: Option<char>) -> Result<String> {
        Ok(format!("{} {customer:?} {note:?}", id.0))
    }

    async fn list(
        &self,
        state: Option<State>,
        tags: Vec<String>,
        sizes: Vec<u8>,
        price: Price,
        urgent: Option<bool>,
        from: Option<IpAddr>,
    ) -> Result<String> {
        Ok(format!("{state:?} {tags:?} {sizes:?} {price:?} {urgent:?} {from:?}"))
    }

    async fn make(&self, customer: String, order: Order, tags: Vec<String>) -> Result<String> {
        Ok(format!("{customer}: {} {} {tags:?}", order.count, order.item))
    }

    async fn change(&self, id: OrderId, order: Order, urgent: bool, tags: Vec<String>) -> Result<String> {
        Ok(format!("{} {} {} {urgent} {tags:?}", id.0, order.count, order.item))
    }

    async fn remove(&self, path: String) -> Result<()> {
        Err(Status::not_found(path))
    }

    async fn numbers(&self, from: u32, count: u32, out: Sender<u32>) -> Result<()> {
        for number in from..from + count {
            out.send(number).await?;
        }
        Ok(())
    }

    async fn sum(&self, mut numbers: Receiver<u32>) -> Result<u32> {
        let mut sum = 0;
        while let Some(number) = numbers.next().await? {
            sum += number;
        }
        Ok(sum)
    }
}

async fn start() -> Running {
    let server = Server::new().add(ShopServer::new(Echo)).listen("tcp://127.0.0.1:0");
    server.start().await.unwrap()
}

#[tokio::test]
async fn paths_and_queries_become_arguments() {
    let running = start().await;
    for (path, reply) in [
        ("/calc/2/add/-3", json!(-1)),
        ("/calc/9223372036854775807/add/0", json!(i64::MAX)),
        ("/orders/18446744073709551615", json!("18446744073709551615 None None")),
        ("/orders/7?note=%C3%A9&customer=Ada+L", json!("7 Some(\"Ada L\") Some('é')")),
        ("/orders/7:peek", json!("7 None None")),
        ("/customers/a%2Fb/orders/7", json!("7 Some(\"a/b\") None")),
        ("/orders?price=1", json!("None [] [] 1.0 None None")),
        (
            "/orders?price=1.5&state=in_transit&tags=a&tags=b&sizes=255&urgent=true&from=::1",
            json!("Some(InTransit) [\"a\", \"b\"] [255] 1.5 Some(true) Some(::1)"),
        ),
    ] {
        let answered = get(&running, path).await;
        has_status(&answered, 200, path);
        assert_eq!(as_json(&answered.1), reply, "{path}");
    }
}

#[tokio::test]
async fn bodies_become_arguments() {
    let running = start().await;
    for (verb, path, body, reply) in [
        (
            "POST",
            "/orders",
            r#"{"customer":"Ada","order":{"item":"pen","count":2},"tags":["a"]}"#,
            "Ada: 2 pen [\"a\"]",
        ),
        // What the path says holds.
        (
            "PATCH",
            "/customers/Bob/orders",
            r#"{"customer":"Ada","order":{"item":"pen","count":2},"tags":[]}"#,
            "Bob: 2 pen []",
        ),
        ("PUT", "/orders/7?urgent=true", r#"{"item":"pen","count":2}"#, "7 2 pen true []"),
        ("PUT", "/orders/7?urgent=0&tags=x", r#"{"item":"pen","count":2}"#, "7 2 pen false [\"x\"]"),
        (
            "POST",
            "/shop.v1.Shop/Make",
            r#"{"customer":"Ada","order":{"item":"pen","count":2},"tags":[]}"#,
            "Ada: 2 pen []",
        ),
    ] {
        let answered = send(&running, &with_body(verb, path, body)).await;
        has_status(&answered, 200, &format!("{verb} {path}"));
        assert_eq!(as_json(&answered.1), json!(reply), "{verb} {path}");
    }
}

#[tokio::test]
async fn requests_that_do_not_fit_are_refused() {
    let running = start().await;
    for (path, status, text) in [
        ("/calc/2/add/x", 400, "`b` in the path: `x` is not a number of 64 bits"),
        ("/calc/9223372036854775807/add/1", 400, "too much"),
        ("/orders/-1", 400, "`id` in the path"),
        ("/orders/7?note=ab", 400, "expected a character"),
        ("/orders/7?notes=a", 400, "parameter `notes`: shop.v1.ShopFindArguments has no field `notes`"),
        ("/orders/7?note=a&note=b", 400, "parameter `note`: it is given twice"),
        ("/orders", 400, "missing field `price`"),
        ("/orders?price=1&sizes=256", 400, "256"),
        ("/orders?price=1&state=lost", 400, "unknown variant `lost`"),
        ("/orders?price=1&from=nowhere", 400, "invalid"),
        ("/orders?price=NaN", 400, "NaN"),
        ("/numbers/1/x", 404, "nothing is at"),
    ] {
        let answered = get(&running, path).await;
        has_status(&answered, status, path);
        let error = as_json(&answered.1);
        assert!(error["message"].as_str().unwrap().contains(text), "{path}: {error}");
    }
    let answered = send(&running, &with_body("PUT", "/orders/7", r#"{"item":"pen","count":2}"#)).await;
    has_status(&answered, 400, "no urgent");
    assert!(as_json(&answered.1)["message"].as_str().unwrap().contains("missing field `urgent`"));
    let answered = send(&running, &with_body("DELETE", "/orders/7", "")).await;
    has_status(&answered, 405, "no such verb");
    assert!(answered.0.contains("allow: get, put"), "{}", answered.0);
    let answered = send(&running, &with_body("DELETE", "/files/a/b%20c", "")).await;
    has_status(&answered, 404, "a status of the handler");
    assert_eq!(as_json(&answered.1), json!({"code": 5, "message": "a/b c", "details": []}));
}

#[tokio::test]
async fn streams_have_paths() {
    let running = start().await;
    let mut stream = dial(&running).await;
    stream.write_all(b"GET /numbers/5?count=2 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    answer(&mut stream).await;
    assert_eq!(chunk(&mut stream).await, b"{\"result\":5}\n");
    assert_eq!(chunk(&mut stream).await, b"{\"result\":6}\n");
    assert_eq!(chunk(&mut stream).await, b"");
    let answered = send(&running, &with_body("POST", "/sum", "1\n2\n3\n")).await;
    has_status(&answered, 200, "/sum");
    assert_eq!(as_json(&answered.1), json!(6));
}

#[tokio::test]
async fn the_description_has_the_types_of_arguments() {
    let running = start().await;
    let document = as_json(&get(&running, "/openapi.json").await.1);
    let paths = &document["paths"];
    let parameter = |operation: &Value, name: &str| -> Value {
        let all = operation["parameters"].as_array().unwrap();
        all.iter().find(|parameter| parameter["name"] == name).cloned().unwrap_or_default()
    };
    let add = &paths["/calc/{a}/add/{b}"]["get"];
    assert_eq!(parameter(add, "a")["schema"], json!({"type": "integer", "format": "int64"}));
    let list = &paths["/orders"]["get"];
    assert_eq!(
        parameter(list, "price"),
        json!({
            "name": "price", "in": "query", "required": true,
            "schema": {"type": "number", "format": "double"}
        })
    );
    assert_eq!(parameter(list, "tags")["schema"], json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(parameter(list, "urgent")["required"], Value::Null);
    let make = &paths["/orders"]["post"];
    let name = "shop.v1.ShopMakeArguments";
    let schema = &make["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], format!("#/components/schemas/{name}"));
    let arguments = &document["components"]["schemas"][name];
    assert_eq!(arguments["properties"]["order"], json!({}), "what serde alone knows");
    assert_eq!(arguments["required"], json!(["customer"]));
    assert!(paths["/orders/{id}:peek"]["get"].is_object() && paths["/files/{path_1}"]["delete"].is_object());
    assert!(paths["/shop.v1.Shop/Make"]["post"].is_object(), "{paths}");
}

#[tokio::test]
async fn other_wires_see_no_difference() {
    let running = start().await;
    let shop = ShopClient::connect(&running.url()).await.unwrap();
    assert_eq!(*shop.add(1, 2).await.unwrap(), 3);
    let order = Order { item: "pen".to_owned(), count: 2 };
    assert_eq!(*shop.change(OrderId(7), order, true, Vec::new()).await.unwrap(), "7 2 pen true []");
}
