//! HTTP rules of services: refused ones, and their effect on the default paths of methods.

use crate::{
    library::{LIBRARY, Library},
    rest::{as_json, get, has_status, send, with_body},
};
use serde_json::json;
use switchboard::{HttpRule, Idempotency, Kind, MethodInfo, Server, Service, ServiceInfo};

/// A service that differs from the library in its methods.
struct Other(&'static ServiceInfo);

impl Service for Other {
    fn info(&self) -> &'static ServiceInfo {
        self.0
    }

    async fn call(&self, call: switchboard::Call) -> switchboard::Result<switchboard::Reply> {
        Library.call(call).await
    }
}

#[tokio::test]
async fn rules_that_do_not_fit_are_refused_at_the_start() {
    const GET: HttpRule = HttpRule { verb: "GET", path: "/", body: "", response_body: "" };
    for (path, kind, body, response_body, part) in [
        (
            "/v1/{nope}",
            Kind::Unary,
            "",
            "",
            "library.v1.Library/Get: GET /v1/{nope}: `nope`: library.v1.Kinds has no field",
        ),
        ("/v1/{numbers}", Kind::Unary, "", "", "is repeated"),
        ("/v1/{inner}", Kind::Unary, "", "", "it is a library.v1.Inner"),
        ("/v1/{", Kind::Unary, "", "", "a brace is not closed"),
        ("/v1/x", Kind::Unary, "nope", "", "no field `nope`"),
        ("/v1/x", Kind::Unary, "", "nope", "no field `nope`"),
        ("/v1/x", Kind::ClientStream, "", "", "a stream of requests needs body"),
    ] {
        let rule: &'static [HttpRule] = vec![HttpRule { path, body, response_body, ..GET }].leak();
        let methods: &'static [MethodInfo] = vec![MethodInfo::new("Get", kind).http(rule)].leak();
        let info = ServiceInfo { name: "library.v1.Library", methods, descriptor: LIBRARY.descriptor };
        let server = Server::new().add(Other(Box::leak(Box::new(info)))).listen("tcp://127.0.0.1:0");
        let error = server.start().await.err().expect("refused").to_string();
        assert!(error.contains(part), "{path}: {error}");
    }
    const TWO: &[MethodInfo] = &[
        MethodInfo::new("Get", Kind::Unary).http(&[HttpRule { path: "/v1/{text}/x", ..GET }]),
        MethodInfo::new("Put", Kind::Unary).http(&[HttpRule { path: "/v1/*/x", ..GET }]),
    ];
    let info = ServiceInfo { name: "library.v1.Library", methods: TWO, descriptor: LIBRARY.descriptor };
    let server = Server::new().add(Other(Box::leak(Box::new(info)))).listen("tcp://127.0.0.1:0");
    let error = server.start().await.err().expect("refused").to_string();
    assert!(
        error.contains("GET /v1/*/x is a path of both library.v1.Library/Get and library.v1.Library/Put"),
        "{error}"
    );
    let info = ServiceInfo { name: "library.v1.Library", methods: TWO, descriptor: &[] };
    let server = Server::new().add(Other(Box::leak(Box::new(info)))).listen("tcp://127.0.0.1:0");
    let error = server.start().await.err().expect("refused").to_string();
    assert!(error.contains("paths need a descriptor"), "{error}");
}

#[tokio::test]
async fn wildcards_do_not_hide_methods() {
    const ALL: &[MethodInfo] =
        &[MethodInfo::new("Get", Kind::Unary).idempotency(Idempotency::NoSideEffects).http(&[
            HttpRule { verb: "GET", path: "/{text=**}", body: "", response_body: "" },
            HttpRule { verb: "POST", path: "/{text=**}", body: "*", response_body: "" },
        ])];
    let info = ServiceInfo { name: "library.v1.Library", methods: ALL, descriptor: LIBRARY.descriptor };
    let server = Server::new().add(Other(Box::leak(Box::new(info)))).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    for (verb, path, text) in [
        ("GET", "/any/path", "any/path"),
        ("POST", "/any/path", "any/path"),
        ("POST", "/library.v1.Library/Get", "body"),
    ] {
        let body = if verb == "POST" { r#"{"text":"body"}"# } else { "" };
        let answered = send(&running, &with_body(verb, path, body)).await;
        has_status(&answered, 200, path);
        assert_eq!(as_json(&answered.1), json!({"text": text}), "{verb} {path}");
    }
    let (_, document) = get(&running, "/openapi.json").await;
    assert_eq!(as_json(&document)["openapi"], "3.1.0");
    let health = with_body("POST", "/grpc.health.v1.Health/Check", "{}");
    let answered = send(&running, &health).await;
    assert_eq!(as_json(&answered.1), json!({"status": "SERVING"}));
}

#[switchboard::service]
trait Calc {
    async fn add(&self, a: u32, b: u32) -> switchboard::Result<u32>;
    async fn now(&self) -> switchboard::Result<String>;
}

struct Adder;

impl Calc for Adder {
    async fn add(&self, a: u32, b: u32) -> switchboard::Result<u32> {
        Ok(a + b)
    }

    async fn now(&self) -> switchboard::Result<String> {
        Ok("noon".to_owned())
    }
}

#[tokio::test]
async fn services_from_traits_take_json() {
    let server = Server::new().add(CalcServer::new(Adder)).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    for (path, body, reply) in [
        ("/Calc/Add", "[1,2]", json!(3)),
        ("/Calc/Add", r#"{"a":1,"b":2}"#, json!(3)),
        ("/Calc/Now", "[]", json!("noon")),
        ("/Calc/Now", "", json!("noon")),
    ] {
        let answered = send(&running, &with_body("POST", path, body)).await;
        has_status(&answered, 200, path);
        assert_eq!(as_json(&answered.1), reply, "{path}");
    }
}
