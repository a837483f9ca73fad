//! Methods that each caller sees in the descriptions of a server with authentication.

use crate::{
    library,
    raw::{answer, dial, post},
};
use serde_json::Value;
use switchboard::{
    Running, Server,
    auth::{ApiKeys, Basic, Caller, Tokens},
    guard::Rule,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ALICE: &str = "authorization: Bearer t0ken-of-alice\r\n";
const ADMIN: &str = "x-api-key: k3y-of-the-admin\r\n";
const WRONG: &str = "authorization: Bearer guessed\r\n";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// `Get` is public, `Put` is the admin's, `Fail` is denied, the others need a caller.
fn guarded(server: Server) -> Server {
    server
        .auth(Tokens::default().token("t0ken-of-alice", Caller::new("alice")))
        .auth(ApiKeys::default().key("k3y-of-the-admin", Caller::new("root").role("admin")))
        .auth(Basic::default().user("carol", "pass", Caller::new("carol")))
        .rule(Rule::methods("library.v1.Library/Get").public())
        .rule(Rule::methods("library.v1.Library/Put").roles(["admin"]))
        .rule(Rule::methods("library.v1.Library/Fail").deny())
}

/// Without any public method.
fn closed(server: Server) -> Server {
    server.auth(Tokens::default().token("t0ken-of-alice", Caller::new("alice")))
}

async fn ask(running: &Running, request: &[u8], credentials: &str) -> (String, String) {
    let request =
        String::from_utf8_lossy(request).replacen("host: x\r\n", &format!("host: x\r\n{credentials}"), 1);
    let mut stream = dial(running).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = answer(&mut stream).await;
    (head, String::from_utf8_lossy(&body).into_owned())
}

async fn get(running: &Running, path: &str, credentials: &str) -> (String, String) {
    ask(running, format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes(), credentials).await
}

/// The methods of the library that a text names.
fn named(text: &str) -> Vec<&'static str> {
    let all = ["Get", "Put", "Title", "File", "Upload", "Follow", "Load", "Fail"];
    let names =
        |name: &&&str| text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == **name);
    all.iter().filter(names).copied().collect()
}

const ALICES: [&str; 6] = ["Get", "Title", "File", "Upload", "Follow", "Load"];
const ADMINS: [&str; 7] = ["Get", "Put", "Title", "File", "Upload", "Follow", "Load"];

#[tokio::test]
async fn lists_of_paths_name_what_the_caller_may_call() {
    let running = library::start(guarded).await;
    for (credentials, shown) in [("", &["Get"][..]), (ALICE, &ALICES), (ADMIN, &ADMINS), (WRONG, &[])] {
        let (head, body) = get(&running, "/", credentials).await;
        assert!(head.starts_with("http/1.1 404 "), "{head}");
        let listed: Vec<_> =
            named(&body).into_iter().filter(|name| body.contains(&format!("Library/{name}"))).collect();
        // The list ends after 20 paths.
        assert!(listed.iter().all(|name| shown.contains(name)), "{credentials}{body}");
        assert_eq!(listed.contains(&"Get"), !shown.is_empty(), "{credentials}{body}");
        assert_eq!(body.contains("POST /v1/books"), shown.contains(&"Put"), "{credentials}{body}");
    }
    let (head, body) = get(&library::start(closed).await, "/", "").await;
    assert!(head.starts_with("http/1.1 404 ") && named(&body).is_empty(), "{head}{body}");
    assert!(body.contains("send authorization: Bearer"), "{body}");
}

#[tokio::test]
async fn openapi_describes_what_the_caller_may_call_and_how_to_be_known() {
    let running = library::start(guarded).await;
    for (credentials, shown) in [("", &["Get"][..]), (ALICE, &ALICES), (ADMIN, &ADMINS)] {
        let (head, body) = get(&running, "/openapi.json", credentials).await;
        assert!(head.starts_with("http/1.1 200 ") && head.contains("cache-control: no-store"), "{head}");
        let document: Value = serde_json::from_str(&body).unwrap();
        let plain: Vec<_> = ADMINS
            .into_iter()
            .chain(["Fail"])
            .filter(|name| document["paths"].get(format!("/library.v1.Library/{name}")).is_some())
            .collect();
        assert_eq!(plain, shown, "{credentials}");
        assert_eq!(document["paths"]["/v1/books"].get("post").is_some(), shown.contains(&"Put"));
        let schemes = &document["components"]["securitySchemes"];
        assert_eq!(schemes["bearer"]["scheme"], "bearer", "{schemes}");
        assert_eq!(schemes["basic"]["type"], "http", "{schemes}");
        assert_eq!(schemes["x-api-key"]["name"], "x-api-key", "{schemes}");
        assert_eq!(document["security"].as_array().unwrap().len(), 3);
        assert_eq!(document["paths"]["/library.v1.Library/Get"]["post"]["security"], serde_json::json!([]));
        let title = &document["paths"]["/library.v1.Library/Title"]["post"];
        assert!(title.get("security").is_none(), "{title}");
    }
    let (head, body) = get(&running, "/openapi.json", WRONG).await;
    assert!(head.starts_with("http/1.1 401 ") && named(&body).is_empty(), "{head}{body}");
    let (head, body) = get(&library::start(closed).await, "/openapi.json", "").await;
    assert!(head.starts_with("http/1.1 401 ") && head.contains("www-authenticate: bearer"), "{head}");
    assert!(named(&body).is_empty(), "{body}");
    // A rule for the document itself shows all of it.
    let public = |server| closed(server).rule(Rule::methods("openapi.json").public());
    let (head, body) = get(&library::start(public).await, "/openapi.json", "").await;
    assert!(head.starts_with("http/1.1 200 ") && named(&body).len() == 8, "{head}");
    // Nothing changes for servers without credentials.
    let (head, body) = get(&library::start(|server| server).await, "/openapi.json", "").await;
    assert!(head.starts_with("http/1.1 200 ") && !head.contains("cache-control"), "{head}");
    assert!(!body.contains("securitySchemes") && !body.contains("\"security\""), "no security");
}

#[tokio::test]
async fn refusals_name_the_credentials_that_are_accepted() {
    let running = library::start(guarded).await;
    let requests = [
        post("/library.v1.Library/Title", "application/json", b"{}"),
        b"GET /v1/title HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        // The parameter is wrong; which there are is not for strangers.
        b"GET /v1/title?txt=1 HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
    ];
    for request in &requests {
        for credentials in ["", WRONG] {
            let (head, body) = ask(&running, request, credentials).await;
            assert!(head.starts_with("http/1.1 401 "), "{head}{body}");
            for challenge in
                ["bearer realm=", "basic realm=", "apikey realm=\"switchboard\", header=\"x-api-key\""]
            {
                assert!(head.contains(&format!("www-authenticate: {challenge}")), "{challenge}: {head}");
            }
            let hint = "send authorization: Bearer, or metadata x-api-key, or authorization: Basic";
            assert_eq!(body.contains(hint), credentials.is_empty(), "{body}");
            assert!(!body.contains("txt"), "{body}");
        }
    }
    let (head, body) = ask(&running, &requests[2], ALICE).await;
    assert!(head.starts_with("http/1.1 400 ") && body.contains("txt"), "{head}{body}");
}

#[tokio::test]
async fn hints_for_unknown_methods_name_what_the_caller_may_call() {
    let running = library::start(guarded).await;
    for kind in ["application/json", "application/proto"] {
        let request = post("/library.v1.Library/Nope", kind, b"{}");
        for (credentials, http, shown) in
            [("", 401, &[][..]), (ALICE, 404, &ALICES), (ADMIN, 404, &ADMINS), (WRONG, 401, &[])]
        {
            let (head, body) = ask(&running, &request, credentials).await;
            assert!(head.starts_with(&format!("http/1.1 {http} ")), "{head}");
            assert_eq!(named(&body), shown, "{kind} {credentials}{body}");
        }
    }
    let running = library::start(closed).await;
    for service in ["library.v1.Library", "no.Such"] {
        let path = format!("/{service}/Nope");
        let (head, body) = ask(&running, &post(&path, "application/json", b"{}"), "").await;
        assert!(head.starts_with("http/1.1 401 "), "{head}");
        assert!(body.contains("this method takes no calls without credentials"), "{body}");
    }
}

/// The answer of reflection to one request, on a connection that ends after it.
async fn reflect(running: &Running, request: &[u8], credentials: &str) -> String {
    let mut body = vec![0, 0, 0, 0, request.len() as u8];
    body.extend_from_slice(request);
    let head = format!(
        "POST {REFLECTION} HTTP/1.1\r\nhost: x\r\n{credentials}connection: close\r\ncontent-type: application/connect+proto\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = dial(running).await;
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn reflection_describes_what_the_caller_may_call() {
    // `list_services`, and `file_containing_symbol` of the library.
    let (list, file) = ([0x3a, 0], [&[0x22, 18][..], b"library.v1.Library"].concat());
    let running = library::start(guarded).await;
    for (credentials, shown) in [("", &["Get"][..]), (ALICE, &ALICES), (ADMIN, &ADMINS)] {
        let listed = reflect(&running, &list, credentials).await;
        assert!(
            listed.contains("library.v1.Library") && listed.contains("grpc.health.v1.Health"),
            "{listed}"
        );
        let described = reflect(&running, &file, credentials).await;
        assert_eq!(named(&described), shown, "{credentials}{described}");
    }
    assert!(reflect(&running, &list, WRONG).await.contains("unauthenticated"));
    let running = library::start(closed).await;
    assert!(reflect(&running, &file, "").await.contains("send authorization: Bearer"));
    assert_eq!(named(&reflect(&running, &file, ALICE).await).len(), 8);
    // A rule for reflection itself shows all of it, to those that it admits.
    let by_rule = |rule: Rule| library::start(move |server| guarded(server).rule(rule));
    let running = by_rule(Rule::methods("grpc.reflection.*").public()).await;
    assert_eq!(named(&reflect(&running, &file, "").await).len(), 8);
    let running = by_rule(Rule::methods("grpc.reflection.*").roles(["admin"])).await;
    assert!(reflect(&running, &file, "").await.contains("unauthenticated"));
    assert!(reflect(&running, &file, ALICE).await.contains("permission_denied"));
    assert_eq!(named(&reflect(&running, &file, ADMIN).await).len(), 8);
}

#[tokio::test]
async fn health_is_for_everyone_and_lists_what_the_caller_may_call() {
    let check = |name: &str| {
        post(
            "/grpc.health.v1.Health/Check",
            "application/json",
            format!("{{\"service\":\"{name}\"}}").as_bytes(),
        )
    };
    let list = post("/grpc.health.v1.Health/List", "application/json", b"{}");
    for rule in [None, Some(Rule::methods("*").roles(["admin"]))] {
        let running = library::start(|server| match rule {
            None => closed(server),
            Some(rule) => closed(server).rule(rule),
        })
        .await;
        for name in ["", "library.v1.Library"] {
            for credentials in ["", WRONG, ALICE] {
                let (head, body) = ask(&running, &check(name), credentials).await;
                assert!(head.starts_with("http/1.1 200 ") && body.contains("SERVING"), "{head}{body}");
            }
        }
        let (head, body) = ask(&running, &list, "").await;
        assert!(head.starts_with("http/1.1 200 ") && !body.contains("library"), "{head}{body}");
    }
    let (_, body) = ask(&library::start(guarded).await, &list, "").await;
    assert!(body.contains("library.v1.Library"), "{body}");
}
