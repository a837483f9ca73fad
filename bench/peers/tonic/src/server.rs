//! The server: accepted connections are dealt to the threads in turn.

use crate::{Echo, PATH, runtime};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    process::ExitCode,
    task::{Context, Poll},
    thread,
};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// Serves until it is killed.
pub(crate) fn serve(threads: usize) -> ExitCode {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("a bound port has an address"));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (deal, connections) = mpsc::unbounded_channel::<std::net::TcpStream>();
            thread::spawn(move || {
                runtime().block_on(async move {
                    let incoming = UnboundedReceiverStream::new(connections).map(|stream| {
                        stream.set_nodelay(true)?;
                        stream.set_nonblocking(true)?;
                        TcpStream::from_std(stream)
                    });
                    Server::builder().add_service(EchoService).serve_with_incoming(incoming).await
                })
            });
            deal
        })
        .collect();
    for (at, stream) in listener.incoming().enumerate() {
        if let Ok(stream) = stream
            && workers[at % workers.len()].send(stream).is_err()
        {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What `tonic-build` would generate, by hand.
#[derive(Clone)]
struct EchoService;

impl NamedService for EchoService {
    const NAME: &'static str = "bench.v1.Bench";
}

impl Service<http::Request<Body>> for EchoService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(Status::unimplemented("only Echo is here").into_http());
            }
            Ok(Grpc::new(ProstCodec::<Echo, Echo>::default()).unary(Answer, request).await)
        })
    }
}

struct Answer;

impl UnaryService<Echo> for Answer {
    type Response = Echo;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Echo>, Status>> + Send>>;

    fn call(&mut self, request: Request<Echo>) -> Self::Future {
        Box::pin(async move { Ok(Response::new(request.into_inner())) })
    }
}
