//! The server that the conformance suite of Connect starts: one message in, one message out, then it serves until
//! it is told to stop.

use buffa::Message;
use conformance::{
    connect::{Obedient, register_types},
    proto::connect::{ConformanceServiceServer, ServerCompatRequest, ServerCompatResponse},
};
use std::error::Error;
use switchboard::{Limit, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// No request of the suite is longer than a few certificates.
const REQUEST_MAX: u32 = 1 << 20;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    register_types();
    switchboard::run(serve())
}

async fn serve() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut input = tokio::io::stdin();
    let length = input.read_u32().await?;
    if length > REQUEST_MAX {
        return Err(format!("a request of {length} bytes: at most {REQUEST_MAX} are taken").into());
    }
    let mut request = vec![0; length as usize];
    input.read_exact(&mut request).await?;
    let request = ServerCompatRequest::decode_from_slice(&request)?;
    if request.use_tls {
        return Err("this server has no TLS".into());
    }

    let mut server = Server::new().add(ConformanceServiceServer::new(Obedient)).listen("tcp://127.0.0.1:0");
    if request.message_receive_limit > 0 {
        server = server.limit(Limit::MessageBytesMax, request.message_receive_limit.into());
    }
    let running = server.start().await?;
    let url = running.url();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| format!("no port in {url}"))?;
    let response = ServerCompatResponse { host: "127.0.0.1".to_owned(), port, ..Default::default() };
    let response = response.encode_to_vec();
    let mut output = tokio::io::stdout();
    output.write_u32(response.len() as u32).await?;
    output.write_all(&response).await?;
    output.flush().await?;

    // The suite closes the input at once and ends its servers by a signal.
    std::future::pending::<()>().await;
    drop(running);
    Ok(())
}
