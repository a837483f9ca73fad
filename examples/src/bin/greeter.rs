//! A service from a `.proto` file, in all four kinds of call.
//!
//! `build.rs` makes the trait, the messages, the server and the client from `demo.proto`. The same server
//! answers gRPC, gRPC-Web and Connect callers on the same port.

use switchboard::{Cx, Receiver, Result, Sender, Server, Status};

/// Generated from `demo.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated code is as public as a library would need it")]
mod demo {
    switchboard::include_proto!("demo.v1");
}

use demo::{
    GreetReply, GreetRequest, GreetRequestView, Greeter, GreeterClient, GreeterServer, Note, Number, Tick,
    Total, WatchRequest, WatchRequestView,
};

struct Hello;

impl Greeter for Hello {
    // A request borrows from the bytes that arrived; nothing is copied to read it.
    async fn greet(&self, request: GreetRequestView<'_>, _: &Cx) -> Result<GreetReply> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("name is empty: say whom to greet"));
        }
        Ok(GreetReply { text: format!("hello {}", request.name), ..Default::default() })
    }

    async fn watch(&self, request: WatchRequestView<'_>, _: &Cx, out: Sender<Tick>) -> Result<()> {
        for n in 0..request.count {
            // Waits while the caller is behind.
            out.send(Tick { n, ..Default::default() }).await?;
        }
        Ok(())
    }

    async fn sum(&self, mut input: Receiver<Number>, _: &Cx) -> Result<Total> {
        let mut total = Total::default();
        while let Some(number) = input.next().await? {
            total.sum = total.sum.wrapping_add(number.value);
            total.count += 1;
        }
        Ok(total)
    }

    async fn chat(&self, mut input: Receiver<Note>, _: &Cx, out: Sender<Note>) -> Result<()> {
        while let Some(note) = input.next().await? {
            out.send(Note { text: note.text.to_uppercase(), ..Default::default() }).await?;
        }
        Ok(())
    }
}

#[switchboard::main]
async fn main() -> Result<()> {
    let server = Server::new().add(GreeterServer::new(Hello)).listen("tcp://127.0.0.1:0").start().await?;
    let greeter = GreeterClient::connect(&server.url()).await?;

    let reply = greeter.greet(GreetRequest { name: "Ada".to_owned(), ..Default::default() }).await?;
    println!("greet: {}", reply.text);
    let refused = greeter.greet(GreetRequest::default()).await;
    println!(
        "greet without a name: {}",
        refused.map_or_else(|status| status.to_string(), |reply| reply.text.clone())
    );

    let mut ticks = greeter.watch(WatchRequest { count: 3, ..Default::default() }).await?;
    while let Some(tick) = ticks.next().await? {
        println!("watch: {}", tick.n);
    }

    let numbers = greeter.sum().await?;
    for value in [1, 2, 39] {
        numbers.send(Number { value, ..Default::default() }).await?;
    }
    println!("sum: {}", numbers.finish().await?.sum);

    let (notes, mut answers) = greeter.chat().await?;
    for text in ["one", "two"] {
        notes.send(Note { text: text.to_owned(), ..Default::default() }).await?;
        if let Some(answer) = answers.next().await? {
            println!("chat: {}", answer.text);
        }
    }
    notes.finish();
    Ok(())
}
