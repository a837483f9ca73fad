//! Serves the service of Thrift's cross tests, and one of protobuf. Prints `listening on
//! http://127.0.0.1:PORT` and serves until a signal stops it.

use std::{error::Error, io::Write};
use switchboard::{Limit, Server};
use thrift_interop::{
    Answers, Greetings, Second,
    generated::greet::v1::GreeterServer,
    test::{SecondServiceServer, ThriftTestServer},
};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    switchboard::run(async {
        let server = Server::new()
            .add(ThriftTestServer::new(Answers::default()))
            .add(SecondServiceServer::new(Second))
            .add(GreeterServer::new(Greetings))
            .limit(Limit::MessageBytesMax, 1 << 20)
            .listen("tcp://127.0.0.1:0");
        let running = server.start().await?;
        println!("listening on {}", running.url().replacen("tcp://", "http://", 1));
        std::io::stdout().flush()?;
        // The tests end this program.
        std::future::pending::<()>().await;
        drop(running);
        Ok(())
    })
}
