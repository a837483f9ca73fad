//! Requests of browsers: preflights and the headers of cross-origin responses; and the description of the
//! services.

use crate::{
    library,
    raw::{answer, dial, post},
};
use serde_json::{Value, json};
use switchboard::{Cors, HttpJson, Running, Server};
use tokio::io::AsyncWriteExt;

async fn send(running: &Running, request: &[u8]) -> (String, Vec<u8>) {
    let mut stream = dial(running).await;
    stream.write_all(request).await.unwrap();
    answer(&mut stream).await
}

async fn send_from(running: &Running, origin: &str, request: &[u8]) -> String {
    // Browsers on this machine reach the server under a name of its own.
    let request = String::from_utf8_lossy(request).replacen("host: x\r\n", "host: localhost\r\n", 1);
    let request = request.replacen("\r\n", &format!("\r\norigin: {origin}\r\n"), 1);
    send(running, request.as_bytes()).await.0
}

/// The value of a header, empty if it is not there.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_default()
}

const PREFLIGHT: &[u8] = b"OPTIONS /v1/books HTTP/1.1\r\nhost: localhost\r\n\
    access-control-request-method: PUT\r\naccess-control-request-headers: x-tenant\r\n\r\n";

#[tokio::test]
async fn without_cors_preflights_are_refused_and_responses_have_no_headers() {
    let running = library::start(|server| server).await;
    let preflight = String::from_utf8_lossy(PREFLIGHT);
    let preflight =
        preflight.replacen("host: localhost", "host: localhost\r\norigin: https://app.example", 1);
    let (head, text) = send(&running, preflight.as_bytes()).await;
    assert!(head.starts_with("http/1.1 403 ") && !head.contains("access-control"), "{head}");
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Server::cors"), "{text}");
    let get = b"GET /v1/books HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let head = send_from(&running, "https://app.example", get).await;
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("access-control"), "{head}");
}

#[tokio::test]
async fn preflights_are_answered_for_allowed_origins() {
    let cors = Cors::new()
        .origin("https://app.example")
        .header("x-tenant")
        .method("PROPFIND")
        .credentials()
        .max_age(std::time::Duration::from_secs(60));
    let running = library::start(|server| server.cors(cors)).await;
    let head = send_from(&running, "https://app.example", PREFLIGHT).await;
    assert!(head.starts_with("http/1.1 204 "), "{head}");
    assert_eq!(header(&head, "access-control-allow-origin"), "https://app.example");
    assert_eq!(header(&head, "access-control-allow-credentials"), "true");
    assert_eq!(header(&head, "access-control-max-age"), "60");
    assert!(header(&head, "access-control-allow-methods").contains("put, propfind"), "{head}");
    let headers = header(&head, "access-control-allow-headers");
    for name in ["x-tenant", "content-type", "connect-protocol-version", "x-grpc-web", "grpc-timeout"] {
        assert!(headers.contains(name), "{name}: {headers}");
    }
    assert!(head.contains("\r\nvary: origin\r\n"), "{head}");
    let head = send_from(&running, "https://evil.example", PREFLIGHT).await;
    assert!(head.starts_with("http/1.1 403 ") && !head.contains("access-control-allow"), "{head}");
}

#[tokio::test]
async fn every_dialect_lets_pages_read_its_answers() {
    let running = library::start(|server| server.cors(Cors::any_origin())).await;
    let get = b"GET /v1/books HTTP/1.1\r\nhost: localhost\r\nx-tag: 1\r\n\r\n".to_vec();
    let connect = post("/library.v1.Library/Get", "application/json", b"{}");
    let web = post("/library.v1.Library/Get", "application/grpc-web+json", b"\0\0\0\0\x02{}");
    let nothing = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec();
    for (request, exposed) in
        [(get, "grpc-metadata-x-tag"), (connect, "x-wire"), (web, "x-wire"), (nothing, "")]
    {
        let head = send_from(&running, "https://app.example", &request).await;
        assert_eq!(header(&head, "access-control-allow-origin"), "*", "{head}");
        let names: Vec<_> = header(&head, "access-control-expose-headers").split(", ").collect();
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin", exposed] {
            assert!(name.is_empty() || names.contains(&name), "{name}: {head}");
        }
    }
}

#[tokio::test]
async fn other_origins_get_no_leave_to_read() {
    let running = library::start(|server| server.cors(Cors::new().origin("https://app.example"))).await;
    let get = b"GET /v1/books HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let head = send_from(&running, "https://evil.example", get).await;
    assert!(!head.contains("access-control") && head.contains("vary: origin"), "{head}");
    let head = send_from(&running, "https://App.example", get).await;
    assert!(head.contains("access-control-allow-origin: https://app.example"), "{head}");
    let (head, _) = send(&running, get).await;
    assert!(!head.contains("access-control") && !head.contains("vary"), "{head}");
}

#[tokio::test]
async fn cors_that_cannot_work_is_refused_at_the_start() {
    let server = Server::new().add(library::Library).listen("tcp://127.0.0.1:0");
    let error = server.cors(Cors::any_origin().credentials()).start().await.err().expect("refused");
    assert!(error.to_string().contains("cors: credentials for any origin"), "{error}");
}

#[tokio::test]
async fn services_describe_themselves() {
    let running = library::start(|server| server).await;
    let (head, body) = send(&running, b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");

    let kinds = &document["components"]["schemas"]["library.v1.Kinds"];
    assert_eq!(kinds["description"], "Every kind of field.");
    for (field, schema) in [
        ("flag", json!({"type": "boolean"})),
        ("data", json!({"type": "string", "contentEncoding": "base64"})),
        ("large", json!({"type": "string", "format": "int64"})),
        ("count", json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})),
        ("color", json!({"$ref": "#/components/schemas/library.v1.Color"})),
        ("numbers", json!({"type": "array", "items": {"type": "string", "format": "int64"}})),
        ("inner", json!({"$ref": "#/components/schemas/library.v1.Inner"})),
        ("at", json!({"type": "string", "format": "date-time"})),
        ("labels", json!({"type": "object", "additionalProperties": {"type": "string"}})),
        ("bookId", json!({"type": "string"})),
    ] {
        assert_eq!(kinds["properties"][field], schema, "{field}");
    }
    let colors = &document["components"]["schemas"]["library.v1.Color"]["enum"];
    assert_eq!(*colors, json!(["GREY", "RED", "DARK_BLUE"]));

    let paths = &document["paths"];
    let by_name = &paths["/library.v1.Library/Get"]["post"];
    assert_eq!(by_name["description"], "Finds a book.");
    let schema = &by_name["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/library.v1.Kinds");

    // Paths of one shape are one path, whatever their fields are called.
    let book = &paths["/v1/books/{book_id}"];
    assert!(book["get"].is_object() && book["patch"].is_object() && book["put"].is_object(), "{book}");
    assert_eq!(book["patch"]["parameters"][0]["description"], "`inner.name`");
    let listed = paths["/v1/books"]["get"]["parameters"].as_array().unwrap();
    let find = |name: &str| listed.iter().find(|parameter| parameter["name"] == name);
    let inner = find("inner.deeper.name").unwrap();
    assert_eq!((&inner["in"], &inner["description"]), (&json!("query"), &json!("What it is called.")));
    assert!(find("numbers").is_some() && find("labels").is_none() && find("inners").is_none());
    assert!(paths["/v1/shelves/{text_1}/books/{text_2}"]["get"].is_object(), "{paths}");
    assert!(paths["/v1/books/{book_id}:peek"]["get"].is_object());
    let events = &paths["/v1/follow"]["get"]["responses"]["200"]["content"];
    assert!(events["text/event-stream"].is_object() && events["application/json"].is_object(), "{events}");
    assert!(paths["/v1/books"].get("propfind").is_none(), "OpenAPI does not know that verb");
}

#[tokio::test]
async fn the_description_can_be_turned_off() {
    let running = library::start(|server| server.http_json(HttpJson::new().without_openapi())).await;
    let (head, _) = send(&running, b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 404 "), "{head}");
}
