//! On a runtime of your own, here tokio's work-stealing one: nothing else changes.
//!
//! `#[switchboard::main]` starts pinned workers, which are faster for many calls; a program that already has
//! a runtime keeps it.

use switchboard::{Result, Server};

#[switchboard::service]
trait Greeter {
    async fn greet(&self, name: String) -> Result<String>;
}

struct Hello;

impl Greeter for Hello {
    async fn greet(&self, name: String) -> Result<String> {
        Ok(format!("hello {name}"))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().add(GreeterServer::new(Hello)).listen("tcp://127.0.0.1:0").start().await?;
    let greeter = GreeterClient::connect(&server.url()).await?;
    let callers: Vec<_> = (1..=3)
        .map(|number| {
            let greeter = greeter.clone();
            tokio::spawn(async move { greeter.greet(format!("caller {number}")).await })
        })
        .collect();
    for caller in callers {
        println!("{}", *caller.await.expect("a call does not panic")?);
    }
    println!("{} connections were aborted", server.drain(std::time::Duration::from_secs(1)).await.aborted);
    Ok(())
}
