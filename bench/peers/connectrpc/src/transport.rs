//! The transport of the client's requests.

use crate::WINDOW;
use connectrpc::{
    ConnectError,
    client::{BoxFuture, ClientBody, ClientTransport, HttpClient},
};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// A connection of HTTP/2, or HTTP/1.1 for one call alone.
#[derive(Clone)]
pub(crate) enum Transport {
    /// connectrpc's own client, without HTTP/2: no preface and settings before the request.
    Once(Box<HttpClient>),
    /// hyper's connection without a pool or a queue before it.
    Http2(SendRequest<ClientBody>),
}

impl Transport {
    /// Connects by HTTP/2.
    pub(crate) async fn http2(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (requests, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Self::Http2(requests))
    }
}

impl ClientTransport for Transport {
    type ResponseBody = Incoming;
    type Error = ConnectError;

    fn send(
        &self,
        request: Request<ClientBody>,
    ) -> BoxFuture<'static, Result<Response<Incoming>, ConnectError>> {
        match self {
            Self::Once(client) => client.send(request),
            Self::Http2(requests) => {
                let response = requests.clone().send_request(request);
                Box::pin(async {
                    response.await.map_err(|error| {
                        ConnectError::unavailable_from_transport("the request was not sent", error)
                    })
                })
            }
        }
    }
}
