//! A service and its caller in one program: `cargo run -p examples --bin hello`.

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

#[switchboard::main]
async fn main() -> Result<()> {
    let server = Server::new().add(GreeterServer::new(Hello)).listen("tcp://127.0.0.1:0").start().await?;
    let greeter = GreeterClient::connect(&server.url()).await?;
    println!("{}", *greeter.greet("Ada".to_owned()).await?);
    Ok(())
}
