//! The server that the Java client calls. Prints `listening on 127.0.0.1:PORT` and serves until a signal
//! stops it.

use interop_baidu::{Echo, proto::EchoServer};
use std::io::Write;
use switchboard::Server;

fn main() -> Result<(), switchboard::Error> {
    switchboard::run(async {
        let server = Server::new()
            .add(EchoServer::new(Echo))
            .alias("echoService/echo", "interop.baidu.Echo/Echo")
            .listen("tcp://127.0.0.1:0");
        let running = server.start().await?;
        println!("listening on {}", running.url().trim_start_matches("tcp://"));
        // The parent process reads the line from a pipe.
        let _ = std::io::stdout().flush();
        std::future::pending::<()>().await;
        drop(running);
        Ok(())
    })
}
