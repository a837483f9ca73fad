//! The server's process: it listens, says where, and ends with its standard input.

use crate::runtime::Runtime;
use socket2::{Domain, Socket, Type};
use std::{
    future::Future,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener},
    pin::Pin,
    thread,
};
use tokio::{net::TcpStream, sync::mpsc};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{TcpListenerStream, UnboundedReceiverStream},
};

/// Connections as they are accepted, without Nagle's delay.
pub type Accepted = Pin<Box<dyn Stream<Item = io::Result<TcpStream>> + Send>>;

/// Serves the connections of a runtime with a rival's library.
pub trait Server: 'static {
    /// Serves them; runs once a runtime.
    fn serve(connections: Accepted) -> impl Future<Output = Result<(), String>> + Send;
}

/// Serves until the standard input ends, which ends the process.
pub(crate) fn serve<S: Server>(host: IpAddr, runtime: Runtime, threads: usize) -> Result<(), String> {
    let listener = listen(host).map_err(|error| format!("no port to listen on: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("listening on {address}");
    io::stdout().flush().map_err(|error| error.to_string())?;
    thread::spawn(|| {
        // What comes is ignored: only the end matters.
        let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
        std::process::exit(0);
    });
    match runtime {
        Runtime::PerCore => deal::<S>(&listener, threads),
        Runtime::Shared => runtime.start(threads)?.block_on(async {
            listener.set_nonblocking(true).map_err(|error| error.to_string())?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
            // Polled by a task of its own: what the main thread runs is woken across threads.
            tokio::spawn(S::serve(Box::pin(TcpListenerStream::new(listener).map(no_delay))))
                .await
                .map_err(|error| error.to_string())?
        }),
    }
}

/// With the backlog that Go has. With the 128 of the standard library 1441 of 15 000 connections overflowed when a
/// thousand callers opened one for each call, and such a one comes a second late; with this none did.
fn listen(host: IpAddr) -> io::Result<TcpListener> {
    let address = SocketAddr::from((host, 0));
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// Gives accepted connections to the threads in turn.
fn deal<S: Server>(listener: &TcpListener, threads: usize) -> Result<(), String> {
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (dealt, connections) = mpsc::unbounded_channel::<std::net::TcpStream>();
            thread::spawn(move || {
                Runtime::PerCore.start(1)?.block_on(async {
                    let connections = UnboundedReceiverStream::new(connections).map(|stream| {
                        stream.set_nonblocking(true)?;
                        no_delay(TcpStream::from_std(stream))
                    });
                    S::serve(Box::pin(connections)).await
                })
            });
            dealt
        })
        .collect();
    for (at, stream) in listener.incoming().enumerate() {
        let stream = stream.map_err(|error| format!("nothing is accepted any more: {error}"))?;
        workers[at % threads].send(stream).map_err(|_| "a thread of the server has ended".to_owned())?;
    }
    Ok(())
}

fn no_delay(stream: io::Result<TcpStream>) -> io::Result<TcpStream> {
    let stream = stream?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
