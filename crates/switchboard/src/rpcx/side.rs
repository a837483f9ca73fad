//! The listener of second connections: each begins with a token that a call was answered with.

use super::{
    Pipe,
    ticket::{TOKEN_BYTES, Ticket},
};
use crate::{Error, Result, Status};
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, timeout},
};

/// Tokens that wait for their connection; the oldest goes when there is one more.
const TOKENS_MAX: usize = 1024;
/// How long a token waits.
const TOKEN_AGE: Duration = Duration::from_secs(30);
/// How long a connection may take to show its token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// After a failed accept, usually for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

type Token = [u8; TOKEN_BYTES];

/// Listens until it is dropped; what goes on by then goes on to its end.
pub(super) struct Side<T> {
    /// What clients are told.
    address: String,
    waiting: Arc<Waiting<T>>,
    task: JoinHandle<()>,
}

struct Waiting<T>(Mutex<VecDeque<(Token, Instant, T)>>);

impl<T: Send + 'static> Side<T> {
    /// Listens at `HOST:PORT`, and hands each connection with the token of a [ticket](Self::ticket) to `serve`.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub(super) async fn listen<F, S>(address: &str, serve: F) -> Result<Side<T>, Error>
    where
        F: Fn(T, Pipe) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let failed = |error| Error::bind(format!("listen at {address} for files or streams: {error}"), error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let waiting = Arc::new(Waiting(Mutex::default()));
        let task = crate::runtime::spawn(accept(listener, waiting.clone(), Arc::new(serve)));
        Ok(Side { address, waiting, task })
    }

    /// Tells clients of another address than that where it listens.
    pub(super) fn advertise(mut self, address: String) -> Side<T> {
        self.address = address;
        self
    }

    /// A ticket for one connection, which brings `what` to it.
    ///
    /// # Errors
    /// `Internal` where the system has no random numbers.
    pub(super) fn ticket(&self, what: T) -> Result<Ticket> {
        let token = self.issue(what)?;
        Ok(Ticket { token: token.to_vec().into(), addr: self.address.clone() })
    }

    fn issue(&self, what: T) -> Result<Token> {
        let mut token = [0; TOKEN_BYTES];
        let none = |_| Status::internal("the system has no random numbers");
        SystemRandom::new().fill(&mut token).map_err(none)?;
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        waiting.retain(|(_, issued, _)| *issued + TOKEN_AGE > now);
        if waiting.len() >= TOKENS_MAX {
            waiting.pop_front();
        }
        waiting.push_back((token, now, what));
        Ok(token)
    }
}

impl<T> Drop for Side<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T> Waiting<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Token, Instant, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a token is for; it is good once.
    fn take(&self, token: &Token) -> Option<T> {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|(known, ..)| known == token)?;
        let (_, issued, what) = waiting.remove(at)?;
        (issued + TOKEN_AGE > Instant::now()).then_some(what)
    }
}

async fn accept<T, F, S>(listener: TcpListener, waiting: Arc<Waiting<T>>, serve: Arc<F>)
where
    T: Send + 'static,
    F: Fn(T, Pipe) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (waiting, serve) = (waiting.clone(), serve.clone());
                crate::runtime::spawn(async move {
                    match begin(socket, &waiting).await {
                        Some((what, pipe)) => serve(what, pipe).await,
                        None => tracing::debug!(%peer, "closed: no token of ours within {TOKEN_TIMEOUT:?}"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("accept: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn begin<T>(mut socket: TcpStream, waiting: &Waiting<T>) -> Option<(T, Pipe)> {
    let mut token = [0; TOKEN_BYTES];
    timeout(TOKEN_TIMEOUT, socket.read_exact(&mut token)).await.ok()?.ok()?;
    Some((waiting.take(&token)?, Pipe::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{io::AsyncWriteExt, sync::mpsc};

    async fn side() -> (Side<u32>, mpsc::UnboundedReceiver<u32>) {
        let (told, tell) = mpsc::unbounded_channel();
        let serve = move |what, mut pipe: Pipe| {
            let told = told.clone();
            async move {
                told.send(what).unwrap();
                pipe.write_all(b"hello").await.unwrap();
            }
        };
        (Side::listen("127.0.0.1:0", serve).await.unwrap(), tell)
    }

    /// What comes after these bytes.
    async fn said(side: &Side<u32>, bytes: &[u8]) -> Vec<u8> {
        let mut socket = TcpStream::connect(&side.address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut said = Vec::new();
        // A token that is refused may end in a reset.
        let _ = socket.read_to_end(&mut said).await;
        said
    }

    #[tokio::test]
    async fn a_token_is_good_once() {
        let (side, mut told) = side().await;
        let tokens = [side.issue(1).unwrap(), side.issue(2).unwrap()];
        assert_ne!(tokens[0], tokens[1]);
        for (at, token) in tokens.iter().enumerate().rev() {
            assert_eq!(said(&side, token).await, b"hello");
            assert_eq!(told.recv().await, Some(at as u32 + 1));
            assert_eq!(said(&side, token).await, b"");
        }
        assert_eq!(said(&side, &tokens[0][..9]).await, b"");
        assert_eq!(said(&side, &[0; TOKEN_BYTES]).await, b"");
        assert!(told.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_bounded_and_grow_old() {
        let (side, _told) = side().await;
        let first = side.issue(0).unwrap();
        for at in 1..=TOKENS_MAX as u32 {
            side.issue(at).unwrap();
        }
        assert_eq!(side.waiting.lock().len(), TOKENS_MAX);
        assert_eq!(side.waiting.take(&first), None);
        let last = side.issue(7).unwrap();
        tokio::time::advance(TOKEN_AGE).await;
        assert_eq!(side.waiting.take(&last), None);
        side.issue(8).unwrap();
        assert_eq!(side.waiting.lock().len(), 1);
    }
}
