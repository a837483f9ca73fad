//! Manipulations of replies by a hostile server.

use super::random::Random;
use std::{future::Future, pin::Pin};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Manipulation of the messages in replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload {
    /// They may change: no client can notice.
    Changed,
    /// Each is what the server sent, for one call.
    Kept,
    /// Each is what the server sent, and may come for another call.
    Repeated,
}

type Play = fn(TcpStream, TcpStream, u64) -> Pin<Box<dyn Future<Output = ()>>>;

/// A trick; `play` gets the sides of the client and of the server, and the number of the connection.
pub struct Trick {
    pub name: &'static str,
    /// Deadline of calls, in milliseconds.
    pub deadline: u64,
    /// Calls still succeed.
    pub harmless: bool,
    pub payload: Payload,
    pub play: Play,
}

/// Deadline of calls that have to succeed on any machine, and of those that get no reply.
const LONG: u64 = 20_000;
const SHORT: u64 = 60;

const fn trick(name: &'static str, deadline: u64, payload: Payload, play: Play) -> Trick {
    Trick { name, deadline, harmless: false, payload, play }
}

pub const ALL: &[Trick] = &[
    Trick {
        harmless: true,
        ..trick("replies byte by byte", LONG, Payload::Kept, |near, far, _| {
            Box::pin(relayed(near, far, async |to, bytes, _| {
                for byte in bytes {
                    to.write_all(&[*byte]).await?;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }))
        })
    },
    trick("accepts and never reads", SHORT, Payload::Kept, |near, far, _| {
        Box::pin(async move {
            let _kept = (near, far);
            std::future::pending::<()>().await;
        })
    }),
    trick("reads and never replies", SHORT, Payload::Kept, |near, far, _| {
        Box::pin(relayed(near, far, async |_, _, _| Ok(())))
    }),
    trick("closes at once", SHORT, Payload::Kept, |_, _, _| Box::pin(async {})),
    trick("closes at a point of the reply", LONG, Payload::Kept, |near, far, number| {
        Box::pin(relayed(near, far, async move |to, bytes, state| {
            // Each connection lives for a few bytes longer than the one before it.
            let left = (number * 7 % 300).saturating_sub(state.sent);
            state.sent += bytes.len() as u64;
            if (bytes.len() as u64) < left {
                return to.write_all(bytes).await;
            }
            to.write_all(&bytes[..left as usize]).await?;
            Err(std::io::ErrorKind::ConnectionAborted.into())
        }))
    }),
    trick("half a reply and silence", SHORT, Payload::Kept, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, state| {
            state.chunks += 1;
            match state.chunks {
                1 if bytes.len() > 200 => to.write_all(bytes).await,
                _ if state.sent == 0 => {
                    state.sent = 1;
                    to.write_all(&bytes[..bytes.len() / 2]).await
                }
                _ => Ok(()),
            }
        }))
    }),
    trick("random bytes at first", SHORT, Payload::Changed, |near, far, number| {
        Box::pin(relayed(near, far, async move |to, bytes, _| {
            to.write_all(&Random(number).bytes(bytes.len() + 100)).await
        }))
    }),
    trick("random bytes between replies", SHORT, Payload::Changed, |near, far, number| {
        Box::pin(relayed(near, far, async move |to, bytes, _| {
            to.write_all(bytes).await?;
            to.write_all(&Random(number).bytes(50)).await
        }))
    }),
    trick("a changed byte in each reply", SHORT, Payload::Changed, |near, far, number| {
        Box::pin(relayed(near, far, async move |to, bytes, state| {
            let mut random = Random(number << 32 | state.chunks);
            state.chunks += 1;
            let mut bytes = bytes.to_vec();
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
            to.write_all(&bytes).await
        }))
    }),
    trick("largest lengths after the handshake", SHORT, Payload::Changed, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, state| {
            state.chunks += 1;
            if state.chunks == 1 {
                return to.write_all(bytes).await;
            }
            let mut bytes = bytes.to_vec();
            bytes.iter_mut().take(16).for_each(|byte| *byte = 0xFF);
            to.write_all(&bytes).await
        }))
    }),
    trick("every reply twice", SHORT, Payload::Repeated, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, _| {
            to.write_all(bytes).await?;
            to.write_all(bytes).await
        }))
    }),
    trick("the first reply again and again", SHORT, Payload::Repeated, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, state| {
            if state.held.is_empty() {
                state.held = bytes.to_vec();
            }
            to.write_all(bytes).await?;
            to.write_all(&state.held.repeat(3)).await
        }))
    }),
    trick("replies in another order", SHORT, Payload::Repeated, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, state| {
            let held = std::mem::replace(&mut state.held, bytes.to_vec());
            state.chunks += 1;
            if state.chunks % 2 == 1 {
                return Ok(());
            }
            to.write_all(bytes).await?;
            state.held.clear();
            to.write_all(&held).await
        }))
    }),
    trick("replies after the deadline", SHORT, Payload::Repeated, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, state| {
            let held = std::mem::replace(&mut state.held, bytes.to_vec());
            to.write_all(&held).await
        }))
    }),
    trick("the first reply without end", SHORT, Payload::Repeated, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, _| {
            for _ in 0..200_000 / bytes.len() {
                to.write_all(bytes).await?;
            }
            Ok(())
        }))
    }),
    trick("zeros without end", SHORT, Payload::Changed, |near, far, _| {
        Box::pin(relayed(near, far, async |to, bytes, _| {
            to.write_all(bytes).await?;
            for _ in 0..100 {
                to.write_all(&[0; 16 << 10]).await?;
            }
            Ok(())
        }))
    }),
    trick("another protocol", SHORT, Payload::Changed, |near, far, _| {
        Box::pin(relayed(near, far, async |to, _, _| {
            to.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\nno\r\n").await
        }))
    }),
];

/// State of a trick for one connection.
#[derive(Default)]
pub struct State {
    chunks: u64,
    sent: u64,
    held: Vec<u8>,
}

/// Requests go on as they are, and `change` writes what the client gets of replies.
async fn relayed(
    near: TcpStream,
    far: TcpStream,
    mut change: impl AsyncFnMut(&mut OwnedWriteHalf, &[u8], &mut State) -> std::io::Result<()>,
) {
    near.set_nodelay(true).unwrap();
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let down = async {
        let (mut buffer, mut state) = (vec![0; 16 << 10], State::default());
        loop {
            match far_in.read(&mut buffer).await {
                Ok(n @ 1..) if change(&mut near_out, &buffer[..n], &mut state).await.is_ok() => {}
                _ => return,
            }
        }
    };
    tokio::select! {
        () = copy(&mut near_in, &mut far_out) => {}
        () = down => {}
    }
}

async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) {
    let _ = tokio::io::copy(from, to).await;
}

/// Both directions as they are.
pub async fn forward(near: TcpStream, far: TcpStream) {
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = copy(&mut near_in, &mut far_out) => {}
        () = copy(&mut far_in, &mut near_out) => {}
    }
}
