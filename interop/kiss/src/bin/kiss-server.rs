//! The server that the Python client calls. Prints `listening on 127.0.0.1:PORT` and serves until a signal
//! stops it.

use interop_kiss::{Back, FUNCTIONS, schema::EchoServer};
use std::io::Write;
use switchboard::Server;

fn main() -> Result<(), switchboard::Error> {
    switchboard::run(async {
        let server = Server::new().add(EchoServer::new(Back::default())).listen("tcp://127.0.0.1:0");
        let named = |server: Server, (name, id): &(&str, u64)| server.alias(format!("kiss/{id}"), *name);
        let running = FUNCTIONS.iter().fold(server, named).start().await?;
        println!("listening on {}", running.url().trim_start_matches("tcp://"));
        // The parent process reads the line from a pipe.
        let _ = std::io::stdout().flush();
        std::future::pending::<()>().await;
        drop(running);
        Ok(())
    })
}
