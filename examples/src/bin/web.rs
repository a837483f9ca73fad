//! HTTP/JSON: the paths that `demo.proto` gives to its methods, for callers that know nothing but HTTP.
//!
//! The paths are options of the methods (`google.api.http`); nothing of them is in the code.

use std::io::{Read, Write};
use std::net::TcpStream;
use switchboard::{Cors, Cx, Result, Server, Status};

/// Generated from `demo.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated code is as public as a library would need it")]
mod demo {
    switchboard::include_proto!("demo.v1");
}

use demo::{Post, Posts, PostsServer, QueryReply, QueryRequestView};

struct OnePost;

impl Posts for OnePost {
    async fn query(&self, request: QueryRequestView<'_>, _: &Cx) -> Result<QueryReply> {
        if request.tag == "secret" {
            return Err(Status::permission_denied("that tag is not for everybody"));
        }
        let post = Post {
            title: "One port for every caller".to_owned(),
            tags: vec![request.tag.to_owned()],
            time: 1_790_000_000,
            ..Default::default()
        };
        Ok(QueryReply { posts: vec![post], ..Default::default() })
    }
}

#[switchboard::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .add(PostsServer::new(OnePost))
        // Pages of this origin may call from a browser.
        .cors(Cors::new().origin("https://app.example"))
        .listen("tcp://127.0.0.1:0")
        .start()
        .await?;
    let address = server.url().trim_start_matches("tcp://").to_owned();
    for path in
        ["/v1/posts?tag=rpc", "/v1/posts?tag=secret", "/v1/posts?tags=rpc", "/v1/post", "/openapi.json"]
    {
        let address = address.clone();
        let answer = tokio::task::spawn_blocking(move || get(&address, path)).await;
        let answer = answer.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let answer = answer.map_err(|error| Status::unavailable(error.to_string()))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let (status, shown) = (head.lines().next().unwrap_or_default(), body.get(..300).unwrap_or(body));
        println!("GET {path}\n{status}\n{shown}\n");
    }
    Ok(())
}

/// Returns the response as curl prints it with `--include`.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
