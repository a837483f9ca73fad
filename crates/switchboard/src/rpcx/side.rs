//! The listener of second connections: each starts with a token from the response to a call.

use super::{
    Pipe,
    permits::{Owner, Permit, Permits, network},
    ticket::{TOKEN_BYTES, Ticket},
};
use ring::rand::{SecureRandom, SystemRandom};
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::{Cx, Error, Result};
use switchboard_wire::Status;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// Validity of a token without a connection.
const TOKEN_AGE: Duration = Duration::from_secs(30);
/// Time limit for a connection to send its token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections without a token so far; further ones wait to be accepted.
const NEW_MAX: usize = 1024;
/// Maximum number of such connections of one address; further ones are closed.
const NEW_OF_ADDRESS_MAX: usize = 256;
/// Pause after a failed accept, which usually means that there are no free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

type Token = [u8; TOKEN_BYTES];

/// The listener. Dropping it stops listening; established connections continue to their end.
pub(super) struct Side<T> {
    /// Address that is sent to clients.
    address: String,
    waiting: Arc<Waiting<T>>,
    permits: Arc<Permits>,
    task: JoinHandle<()>,
}

/// Tickets without a connection so far, the oldest first. [`Permits`] limits their number.
struct Waiting<T>(Mutex<VecDeque<Entry<T>>>);

struct Entry<T> {
    token: Token,
    issued: Instant,
    permit: Permit,
    what: T,
}

impl<T: Send + 'static> Side<T> {
    /// Listens at `HOST:PORT`, and passes each connection with the token of a [ticket](Self::ticket) to
    /// `serve`.
    ///
    /// # Errors
    /// Fails if listening at the address fails.
    pub(super) async fn listen<F, S>(address: &str, serve: F) -> Result<Side<T>, Error>
    where
        F: Fn(T, Pipe) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let failed = |error| Error::bind(format!("listen at {address} for files or streams: {error}"), error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let waiting = Arc::new(Waiting(Mutex::default()));
        let task = switchboard_core::runtime::spawn(accept(listener, waiting.clone(), Arc::new(serve)));
        Ok(Side { address, waiting, permits: Arc::default(), task })
    }

    /// Sets the address that is sent to clients, if it differs from the one of the listener.
    pub(super) fn advertise(mut self, address: String) -> Side<T> {
        self.address = address;
        self
    }

    /// Issues a ticket for one connection, which is served with `what`; `bytes` is the size of `what`.
    ///
    /// # Errors
    /// `ResourceExhausted` at a limit of tickets; `Internal` if the system cannot provide random numbers.
    pub(super) fn ticket(&self, what: T, bytes: usize, cx: &Cx) -> Result<Ticket> {
        self.waiting.expire(Instant::now());
        let permit = self.permits.acquire(Owner::of(cx), bytes, Some(cx))?;
        let token = self.issue(what, permit)?;
        Ok(Ticket { token: token.to_vec().into(), addr: self.address.clone() })
    }

    fn issue(&self, what: T, permit: Permit) -> Result<Token> {
        let mut token = [0; TOKEN_BYTES];
        let none = |_| Status::internal("the system has no random numbers");
        SystemRandom::new().fill(&mut token).map_err(none)?;
        self.waiting.lock().push_back(Entry { token, issued: Instant::now(), permit, what });
        Ok(token)
    }
}

impl<T> Drop for Side<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T> Waiting<T> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops expired tickets.
    fn expire(&self, now: Instant) {
        let mut waiting = self.lock();
        let expired = waiting
            .iter()
            .take_while(|entry| now.saturating_duration_since(entry.issued) >= TOKEN_AGE)
            .count();
        waiting.drain(..expired);
    }

    /// Takes the ticket with this token, which is thereby used up.
    fn take(&self, token: &Token) -> Option<(T, Permit)> {
        self.expire(Instant::now());
        let mut waiting = self.lock();
        let at = waiting.iter().position(|entry| entry.token == *token)?;
        waiting.remove(at).map(|entry| (entry.what, entry.permit))
    }
}

/// Number of connections without a token, by address.
#[derive(Default)]
struct New(Mutex<HashMap<IpAddr, usize>>);

struct NewConnection {
    new: Arc<New>,
    address: IpAddr,
}

impl New {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; returns `None` if its address has too many.
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<NewConnection> {
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        (*count < NEW_OF_ADDRESS_MAX).then(|| {
            *count += 1;
            NewConnection { new: self.clone(), address }
        })
    }
}

impl Drop for NewConnection {
    fn drop(&mut self) {
        let mut counts = self.new.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

async fn accept<T, F, S>(listener: TcpListener, waiting: Arc<Waiting<T>>, serve: Arc<F>)
where
    T: Send + 'static,
    F: Fn(T, Pipe) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let (places, new) = (Arc::new(Semaphore::new(NEW_MAX)), Arc::new(New::default()));
    let mut expire = switchboard_core::clock::after(switchboard_core::clock::now(), TOKEN_AGE).into();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            (place, listener.accept().await)
        };
        // Both branches are cancel safe.
        let Ok((place, accepted)) = timeout_at(expire, next).await else {
            expire = switchboard_core::clock::after(switchboard_core::clock::now(), TOKEN_AGE).into();
            waiting.expire(Instant::now());
            continue;
        };
        match accepted {
            Ok((socket, peer)) => {
                let Some(entered) = new.enter(network(peer.ip())) else {
                    tracing::debug!(%peer, "closed: {NEW_OF_ADDRESS_MAX} connections of its address have no token");
                    continue;
                };
                let (waiting, serve) = (waiting.clone(), serve.clone());
                switchboard_core::runtime::spawn(async move {
                    let begun = begin(socket, &waiting).await;
                    drop((entered, place));
                    match begun {
                        Some((what, permit, pipe)) => {
                            serve(what, pipe).await;
                            drop(permit);
                        }
                        None => tracing::debug!(%peer, "closed: no valid token within {TOKEN_TIMEOUT:?}"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!("accept: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn begin<T>(mut socket: TcpStream, waiting: &Waiting<T>) -> Option<(T, Permit, Pipe)> {
    let mut token = [0; TOKEN_BYTES];
    timeout(TOKEN_TIMEOUT, socket.read_exact(&mut token)).await.ok()?.ok()?;
    let (what, permit) = waiting.take(&token)?;
    Some((what, permit, Pipe::new(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{io::AsyncWriteExt, sync::mpsc};

    async fn side() -> (Side<u32>, mpsc::UnboundedReceiver<u32>) {
        let (sender, received) = mpsc::unbounded_channel();
        let serve = move |what, mut pipe: Pipe| {
            let sender = sender.clone();
            async move {
                sender.send(what).unwrap();
                pipe.write_all(b"hello").await.unwrap();
            }
        };
        (Side::listen("127.0.0.1:0", serve).await.unwrap(), received)
    }

    fn issue(side: &Side<u32>, what: u32) -> Token {
        side.issue(what, side.permits.acquire(Owner::Local, 0, None).unwrap()).unwrap()
    }

    /// Sends these bytes and returns the response.
    async fn exchange(side: &Side<u32>, bytes: &[u8]) -> Vec<u8> {
        let mut socket = TcpStream::connect(&side.address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut response = Vec::new();
        // A rejected connection may end with a reset.
        let _ = socket.read_to_end(&mut response).await;
        response
    }

    #[tokio::test]
    async fn a_token_is_good_once() {
        let (side, mut received) = side().await;
        let tokens = [issue(&side, 1), issue(&side, 2)];
        assert_ne!(tokens[0], tokens[1]);
        for (at, token) in tokens.iter().enumerate().rev() {
            assert_eq!(exchange(&side, token).await, b"hello");
            assert_eq!(received.recv().await, Some(at as u32 + 1));
            assert_eq!(exchange(&side, token).await, b"");
        }
        assert_eq!(exchange(&side, &tokens[0][..9]).await, b"");
        assert_eq!(exchange(&side, &[0; TOKEN_BYTES]).await, b"");
        assert!(received.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_grow_old() {
        let (side, _received) = side().await;
        let (first, second) = (issue(&side, 1), issue(&side, 2));
        assert!(side.waiting.take(&first).is_some());
        tokio::time::advance(TOKEN_AGE).await;
        assert!(side.waiting.take(&second).is_none());
        assert!(side.waiting.lock().is_empty());
        // The listener also drops expired tickets without requests.
        issue(&side, 3);
        while !side.waiting.lock().is_empty() {
            tokio::time::advance(TOKEN_AGE / 2).await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn connections_without_a_token_are_bounded_by_address() {
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let new = Arc::new(New::default());
        let mut held: Vec<_> = std::iter::from_fn(|| new.enter(a)).collect();
        assert_eq!(held.len(), NEW_OF_ADDRESS_MAX);
        assert!(new.enter(b).is_some());
        held.pop();
        held.push(new.enter(a).expect("one has ended"));
        drop(held);
        assert!(new.lock().is_empty());
    }
}
