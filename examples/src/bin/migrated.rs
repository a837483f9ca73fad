//! The `helloworld` of tonic's tutorial, moved to Switchboard: the same `.proto` file, the same callers on gRPC.
//!
//! `docs/migrating-from-grpc.md` shows old and new side by side. The client here speaks gRPC, as it would to a server
//! that has not moved yet; without `?wire=grpc` it speaks the native wire to this one.

use futures_core::Stream;
use std::time::Duration;
use switchboard::{Codec, Cors, Cx, Receiver, Result, Server, Status, codec::proto};

/// Generated from `helloworld.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated code is as public as a library would need it")]
mod helloworld {
    switchboard::include_proto!("helloworld");
}

use helloworld::{BadField, Greeter, GreeterClient, GreeterServer, HelloReply, HelloRequest};

struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: HelloRequest, cx: &Cx) -> Result<HelloReply> {
        authorize(cx)?;
        if request.name.is_empty() {
            let field =
                BadField { field: "name".to_owned(), why: "is empty".to_owned(), ..Default::default() };
            let status = Status::invalid_argument("name is empty: say whom to greet");
            return Err(status.with_detail("helloworld.BadField", proto::encode(&field, Codec::Proto)?));
        }
        cx.reply_metadata("x-served-by", "switchboard")?;
        Ok(hello(&request.name))
    }

    async fn say_hello_stream(
        &self,
        request: HelloRequest,
        cx: &Cx,
    ) -> Result<impl Stream<Item = Result<HelloReply>> + Send> {
        authorize(cx)?;
        cx.reply_trailer("x-greetings", "3")?;
        // Any stream of the crates `futures` and `tokio-stream` will do.
        let replies: Receiver<_> = (0..3).map(|_| hello(&request.name)).collect();
        Ok(replies)
    }
}

/// Replaces an interceptor of tonic.
fn authorize(cx: &Cx) -> Result<()> {
    match cx.metadata().text("authorization") {
        Some("Bearer some-secret-token") => Ok(()),
        _ => Err(Status::unauthenticated("no valid token")),
    }
}

fn hello(name: &str) -> HelloReply {
    HelloReply { message: format!("Hello {name}!"), ..Default::default() }
}

fn asking(name: &str) -> HelloRequest {
    HelloRequest { name: name.to_owned(), ..Default::default() }
}

#[switchboard::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .add(GreeterServer::new(MyGreeter))
        .cors(Cors::new().origin("https://app.example"))
        .listen("tcp://127.0.0.1:0")
        .start()
        .await?;

    let greeter = GreeterClient::connect(&format!("{}?wire=grpc&timeout=5s", server.url())).await?;
    const TOKEN: &str = "Bearer some-secret-token";

    let reply = greeter
        .say_hello(asking("Tonic"))
        .meta("authorization", TOKEN)
        .timeout(Duration::from_millis(500))
        .await?;
    println!(
        "{} served by {}",
        reply.message,
        reply.meta().text("x-served-by").unwrap_or("an unknown server")
    );

    match greeter.say_hello(asking("")).meta("authorization", TOKEN).await {
        Ok(reply) => println!("{}", reply.message),
        Err(status) => {
            println!("{}: {}", status.code(), status.message());
            for detail in status.details().iter().filter(|detail| detail.type_name == "helloworld.BadField") {
                let wrong: BadField = proto::decode(Codec::Proto, detail.value.clone())?;
                println!("{} {}", wrong.field, wrong.why);
            }
        }
    }
    if let Err(status) = greeter.say_hello(asking("Tonic")).await {
        println!("{status}");
    }

    let mut replies = greeter.say_hello_stream(asking("Tonic")).meta("authorization", TOKEN).await?;
    while let Some(reply) = replies.next().await? {
        println!("{}", reply.message);
    }
    println!("{} greetings", replies.trailers().text("x-greetings").unwrap_or("no"));
    Ok(())
}
