//! The server: the generated service.

use crate::proto::{
    BenchmarkMessage, EchoMessage,
    bench_server::{self, BenchServer},
};
use rustpeer::{Accepted, MESSAGE_BYTES_MAX};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// The service.
pub(crate) struct Bench;

impl rustpeer::Server for Bench {
    async fn serve(connections: Accepted) -> Result<(), String> {
        let service = BenchServer::new(Bench).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let served = Server::builder().add_service(service).serve_with_incoming(connections).await;
        served.map_err(|error| format!("{error:?}"))
    }
}

#[tonic::async_trait]
impl bench_server::Bench for Bench {
    async fn echo(&self, request: Request<EchoMessage>) -> Result<Response<EchoMessage>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn message(
        &self,
        request: Request<BenchmarkMessage>,
    ) -> Result<Response<BenchmarkMessage>, Status> {
        let mut message = request.into_inner();
        message.field1 = "OK".to_owned();
        message.field2 = 100;
        Ok(Response::new(message))
    }

    type StreamStream = Streaming<EchoMessage>;

    async fn stream(
        &self,
        request: Request<Streaming<EchoMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
