//! The server that the conformance suite of Connect starts: one message in, one message out, then it serves
//! until a signal stops it.

use buffa::Message;
use conformance::{
    connect::{Obedient, register_types},
    pem::Folder,
    proto::connect::{ConformanceServiceServer, ServerCompatRequest, ServerCompatResponse},
};
use std::{error::Error, time::Duration};
use switchboard::{Limit, Server, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// No request of the suite is longer than a few certificates.
const REQUEST_MAX: u32 = 1 << 20;

const ADDRESS: &str = "tcp://127.0.0.1:0";

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

    let mut server = Server::new().add(ConformanceServiceServer::new(Obedient));
    let files = Folder::new()?;
    server = match request.use_tls {
        false => server.listen(ADDRESS),
        true => server.listen_tls(ADDRESS, tls(&request, &files)?),
    };
    if request.message_receive_limit > 0 {
        server = server.limit(Limit::MessageBytesMax, request.message_receive_limit.into());
    }
    let running = server.start().await?;
    // They were read, and the suite ends this program by a signal.
    drop(files);
    let url = running.url();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| format!("no port in {url}"))?;
    let response = ServerCompatResponse {
        host: "127.0.0.1".to_owned(),
        port,
        pem_cert: request.server_creds.cert.clone(),
        ..Default::default()
    };
    let response = response.encode_to_vec();
    let mut output = tokio::io::stdout();
    output.write_u32(response.len() as u32).await?;
    output.write_all(&response).await?;
    output.flush().await?;

    // The suite closes the input at once.
    std::future::pending::<()>().await;
    drop(running);
    Ok(())
}

/// The certificate to show, and that of callers where they must have one.
fn tls(request: &ServerCompatRequest, files: &Folder) -> std::io::Result<Tls> {
    let own = &request.server_creds;
    let tls = Tls::files(files.file(&own.cert)?, files.file(&own.key)?).check_every(Duration::ZERO);
    match request.client_tls_cert.is_empty() {
        true => Ok(tls),
        false => Ok(tls.client_roots(files.file(&request.client_tls_cert)?)),
    }
}
