//! The server of the floor: reads all available data, replies to each frame inline, writes once.

use super::{BUFFER, make_room, put_frame, spin, take_frame};
use crate::bench::worker;
use bytes::BytesMut;
use std::{convert::Infallible, io, net, thread};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{UnboundedSender, unbounded_channel},
};

/// Serves connections of `listener` on `workers` threads, assigned in turn, until accepting fails permanently.
///
/// # Errors
/// When a worker cannot be started or the listener fails.
pub(crate) fn serve(listener: &net::TcpListener, workers: usize) -> Result<Infallible, String> {
    let hands = (0..workers).map(start_worker).collect::<Result<Vec<_>, _>>()?;
    for hand in hands.iter().cycle() {
        let socket = accept(listener)?;
        hand.send(socket).map_err(|_| "a floor worker stopped".to_owned())?;
    }
    Err("a floor server needs at least one worker".to_owned())
}

fn start_worker(at: usize) -> Result<UnboundedSender<net::TcpStream>, String> {
    let (hand, mut dealt) = unbounded_channel::<net::TcpStream>();
    worker::start(&format!("floor-{at}"), move || async move {
        while let Some(socket) = dealt.recv().await {
            // A failed connection affects only its client, which sees it closed.
            tokio::task::spawn_local(serve_connection(socket));
        }
    })?;
    Ok(hand)
}

fn accept(listener: &net::TcpListener) -> Result<net::TcpStream, String> {
    loop {
        match listener.accept() {
            Ok((socket, _)) => return Ok(socket),
            // The client disconnected before it was accepted: accept the next one.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => thread::yield_now(),
            Err(error) => return Err(format!("cannot accept connections: {error}")),
        }
    }
}

async fn serve_connection(socket: net::TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let mut socket = TcpStream::from_std(socket)?;
    let mut input = BytesMut::with_capacity(BUFFER);
    let mut output = BytesMut::with_capacity(BUFFER);
    loop {
        make_room(&mut input);
        if socket.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        spin::traffic();
        while let Some((id, payload)) = take_frame(&mut input) {
            put_frame(&mut output, id, &payload);
        }
        socket.write_all(&output).await?;
        output.clear();
    }
}
