//! The server that gRPC's interop clients call. Prints `listening on http://127.0.0.1:PORT` and serves until
//! a signal stops it.

use conformance::{grpc::Interop, proto::grpc::TestServiceServer};
use std::io::Write;
use switchboard::Server;

fn main() -> Result<(), switchboard::Error> {
    switchboard::run(async {
        let server = Server::new().add(TestServiceServer::new(Interop)).listen("tcp://127.0.0.1:0");
        let running = server.start().await?;
        println!("listening on {}", running.url().replacen("tcp", "http", 1));
        // The parent process reads the line from a pipe.
        let _ = std::io::stdout().flush();
        std::future::pending::<()>().await;
        drop(running);
        Ok(())
    })
}
