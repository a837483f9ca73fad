//! The HTTP interface.

use crate::support::{soon, start, verified};
use serde_json::{Value, json};
use switchboard::{Running, Server};
use switchboard_push::CentrifugoApi;
use switchboard_wire::centrifuge::Format;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn post(server: &Running, path: &str, header: &str, body: &str) -> (u16, String) {
    let mut link = TcpStream::connect(server.url().replace("tcp://", "")).await.unwrap();
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.0\r\nhost: localhost\r\n{header}content-length: {length}\r\n\r\n{body}");
    link.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(link.read_to_string(&mut response)).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn call(server: &Running, method: &str, body: &Value) -> Value {
    let path = format!("/api/{method}");
    let (status, body) = post(server, &path, "x-api-key: secret\r\n", &body.to_string()).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn programs_publish_and_give_orders() {
    let gateway = start(verified(), |plugin| plugin).await;
    let api = Server::new().plugin(CentrifugoApi::new(gateway.hub.clone()).key("secret"));
    let api = api.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let mut device = gateway.user(Format::Json, "ali").await;
    device.join("live:7").await;

    let request = json!({ "channel": "live:7", "data": { "n": 1 }, "tags": { "a": "b" } });
    let result = call(&api, "publish", &request).await;
    let offset = result["result"]["offset"].as_u64().unwrap();
    let publication = device.push().await.publication.unwrap();
    assert_eq!((&publication.data.0[..], publication.offset), (&br#"{"n":1}"#[..], offset));
    assert_eq!(publication.tags["a"], "b");

    let request = json!({ "channels": ["live:7", "live:8"], "data": 2 });
    let responses = call(&api, "broadcast", &request).await["result"]["responses"].clone();
    assert_eq!(responses.as_array().unwrap().len(), 2);
    assert_eq!(device.publication().await.0, "2");

    let history = call(&api, "history", &json!({ "channel": "live:7", "limit": -1 })).await;
    assert_eq!(history["result"]["publications"][1]["data"], 2);
    let presence = call(&api, "presence", &json!({ "channel": "live:7" })).await;
    assert_eq!(presence["result"]["presence"].as_object().unwrap().len(), 1);
    let stats = call(&api, "presence_stats", &json!({ "channel": "live:7" })).await;
    assert_eq!(stats["result"], json!({ "num_clients": 1, "num_users": 1 }));
    let channels = call(&api, "channels", &json!({})).await;
    assert_eq!(channels["result"]["channels"], json!({ "live:7": { "num_clients": 1 } }));
    let info = call(&api, "info", &json!({})).await;
    assert_eq!(info["result"]["nodes"][0]["num_clients"], 1);

    let batch = json!({ "commands": [{ "publish": { "channel": "live:7", "data": 3 } }, { "nothing": {} }] });
    let replies = call(&api, "batch", &batch).await["result"]["replies"].clone();
    assert!(replies[0]["publish"]["offset"].is_u64() && replies[1]["error"]["code"] == 107, "{replies}");
    assert_eq!(device.publication().await.0, "3");

    call(&api, "subscribe", &json!({ "user": "ali", "channel": "private:1" })).await;
    assert!(device.push().await.subscribe.is_some());
    call(&api, "unsubscribe", &json!({ "user": "ali", "channel": "private:1" })).await;
    assert!(device.push().await.unsubscribe.is_some());
    call(&api, "disconnect", &json!({ "user": "ali", "disconnect": { "reason": "bye" } })).await;
    assert_eq!(device.closed().await, (3503, "bye".to_owned()));
}

#[tokio::test]
async fn a_caller_needs_a_key() {
    let gateway = start(verified(), |plugin| plugin).await;
    let closed = CentrifugoApi::new(gateway.hub.clone());
    let keyed = closed.clone().key("secret").body_bytes_max(64);
    for (api, header, status) in [
        (closed, "x-api-key: \r\n", 401),
        (keyed.clone(), "", 401),
        (keyed.clone(), "x-api-key: secre\r\n", 401),
        (keyed.clone(), "authorization: apikey secret\r\n", 200),
        (keyed.clone(), "x-api-key: secret\r\n", 200),
        (keyed.clone().open(), "", 200),
    ] {
        let api = Server::new().plugin(api).listen("tcp://127.0.0.1:0").start().await.unwrap();
        assert_eq!(post(&api, "/api/info", header, "{}").await.0, status, "{header}");
    }
    let api = Server::new().plugin(keyed.open()).listen("tcp://127.0.0.1:0").start().await.unwrap();
    assert_eq!(post(&api, "/api/info", "", &" ".repeat(65)).await.0, 413);
    for body in ["no json", r#"{"channel":1}"#, "{}", r#"{"channel":"live:1"}"#] {
        let (status, body) = post(&api, "/api/publish", "", body).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (200, &json!(107)), "{body}");
    }
}
