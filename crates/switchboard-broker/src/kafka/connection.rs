//! A connection to one server.

use super::{RESPONSE_TIMEOUT, errors, messages, messages::Api};
use bytes::{Buf, Bytes, BytesMut};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Retry, Status};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// Requests that wait to be written; further callers wait for them.
const WRITES_MAX: usize = 64;
/// Bytes of one response: more than one read requests, and the largest batch of the default configuration.
const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Bytes that are reserved before they arrive.
const READ_BYTES: usize = 64 << 10;

/// User and password of SASL's mechanism PLAIN.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

/// A connection that matches responses to requests by their numbers. Dropped, it is closed.
pub(super) struct Connection {
    /// The engine and the server, for messages.
    name: String,
    next: AtomicI32,
    writes: mpsc::Sender<Bytes>,
    pending: std::sync::Arc<Pending>,
    tasks: [JoinHandle<()>; 2],
}

/// Requests without a response.
#[derive(Default)]
struct Pending(Mutex<State>);

#[derive(Default)]
struct State {
    by_number: HashMap<i32, oneshot::Sender<Bytes>>,
    /// Reason of the end of the connection.
    closed: Option<String>,
}

impl Pending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all requests.
    fn close(&self, why: String) {
        let mut state = self.state();
        state.closed.get_or_insert(why);
        state.by_number.clear();
    }
}

impl Connection {
    /// Opens a connection, checks the versions of the server, and authenticates.
    pub(super) async fn open(
        engine: &str,
        (host, port): (&str, u16),
        credentials: Option<&Credentials>,
    ) -> Result<Connection> {
        let name = format!("{engine}: server {host}:{port}");
        let safe = |why: &dyn std::fmt::Display| {
            Status::unavailable(format!("{name}: {why}")).with_retry(Retry::Safe)
        };
        let opening = async {
            let stream = TcpStream::connect((host, port)).await.map_err(|error| safe(&error))?;
            stream.set_nodelay(true).map_err(|error| safe(&error))?;
            let connection = Connection::begin(name.clone(), stream);
            connection.check_versions().await?;
            if let Some(credentials) = credentials {
                connection.authenticate(credentials).await?;
            }
            Ok(connection)
        };
        timeout(RESPONSE_TIMEOUT, opening).await.map_err(|_| safe(&"does not respond"))?
    }

    fn begin(name: String, stream: TcpStream) -> Connection {
        let (input, output) = stream.into_split();
        let pending = std::sync::Arc::<Pending>::default();
        let (writes, queue) = mpsc::channel(WRITES_MAX);
        let tasks =
            [tokio::spawn(read(input, pending.clone())), tokio::spawn(write(output, queue, pending.clone()))];
        Connection { name, next: AtomicI32::new(0), writes, pending, tasks }
    }

    async fn check_versions(&self) -> Result<()> {
        let body = self.request(messages::API_VERSIONS, &[], RESPONSE_TIMEOUT).await?;
        let versions = messages::api_versions(body).ok_or_else(|| self.unreadable(messages::API_VERSIONS))?;
        for needed in messages::NEEDED {
            let found = versions.iter().find(|(key, ..)| *key == needed.key);
            let (first, last) = found.map_or((0, -1), |(_, first, last)| (*first, *last));
            if !(first..=last).contains(&needed.version) {
                let text = format!(
                    "{} has versions {first} to {last} of {}; version {} is needed, which Kafka 3.1 to 4 have",
                    self.name, needed.name, needed.version
                );
                return Err(Status::failed_precondition(text));
            }
        }
        Ok(())
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<()> {
        let api = messages::SASL_HANDSHAKE;
        let body = messages::sasl_handshake_request("PLAIN").0;
        let body = self.request(api, &body, RESPONSE_TIMEOUT).await?;
        let (error, mechanisms) = messages::sasl_handshake(body).ok_or_else(|| self.unreadable(api))?;
        if error != errors::NONE {
            let text = format!("the server has [{}], this client PLAIN", mechanisms.join(", "));
            return Err(errors::status(&self.name, api.name, error, &text));
        }
        let api = messages::SASL_AUTHENTICATE;
        let token = format!("\0{}\0{}", credentials.user, credentials.password);
        let body = messages::sasl_authenticate_request(token.as_bytes()).0;
        let body = self.request(api, &body, RESPONSE_TIMEOUT).await?;
        let (error, text) = messages::sasl_authenticate(body).ok_or_else(|| self.unreadable(api))?;
        match error {
            errors::NONE => Ok(()),
            _ => Err(errors::status(&self.name, api.name, error, &text)),
        }
    }

    /// Sends a request; resolves to the body of its response. A connection that does not respond in time is closed.
    /// Cancel safe: a dropped request may have been sent.
    pub(super) async fn request(&self, api: Api, body: &[u8], limit: Duration) -> Result<Bytes> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (respond, response) = oneshot::channel();
        {
            let mut state = self.pending.state();
            if let Some(why) = &state.closed {
                return Err(Status::unavailable(format!("{}: {why}", self.name)).with_retry(Retry::Safe));
            }
            state.by_number.insert(number, respond);
        }
        let frame = messages::frame(api, number, body);
        let exchange = async {
            // A closed queue has dropped the sender of the response.
            let _ = self.writes.send(frame).await;
            response.await
        };
        match timeout(limit, exchange).await {
            Ok(Ok(response)) => messages::body(api, response).ok_or_else(|| self.unreadable(api)),
            Ok(Err(_)) => Err(self.away()),
            Err(_) => {
                self.close("does not respond");
                Err(self.away())
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pending.state().closed.is_some()
    }

    /// Ends the connection, and all requests.
    pub(super) fn close(&self, why: &str) {
        self.pending.close(why.to_owned());
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    fn away(&self) -> Status {
        let why = self.pending.state().closed.clone();
        Status::unavailable(format!(
            "{}: {}",
            self.name,
            why.as_deref().unwrap_or("has closed the connection")
        ))
    }

    pub(super) fn unreadable(&self, api: Api) -> Status {
        Status::unavailable(format!("{} sent an invalid response to {}", self.name, api.name))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Writes frames until an error, or the end of the connection.
async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Bytes>,
    pending: std::sync::Arc<Pending>,
) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = output.write_all(&frame).await {
            return pending.close(error.to_string());
        }
    }
}

/// Reads frames until an error, or the end of the connection.
async fn read(mut input: impl AsyncRead + Unpin, pending: std::sync::Arc<Pending>) {
    let mut bytes = BytesMut::new();
    loop {
        match frame(&mut input, &mut bytes).await {
            Ok(mut frame) => {
                let number = frame.get_i32();
                let Some(respond) = pending.state().by_number.remove(&number) else {
                    return pending
                        .close(format!("sent a response with the number {number}, which no request has"));
                };
                // The caller may have gone.
                let _ = respond.send(frame);
            }
            Err(why) => return pending.close(why),
        }
    }
}

/// Reads one frame without its length.
async fn frame(
    input: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
) -> std::result::Result<Bytes, String> {
    loop {
        if let Some(length) = bytes.first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if !(4..=RESPONSE_BYTES_MAX).contains(&length) {
                return Err(format!("sent a response of {length} bytes; the limit is {RESPONSE_BYTES_MAX}"));
            }
            if bytes.len() >= length + 4 {
                bytes.advance(4);
                return Ok(bytes.split_to(length).freeze());
            }
        }
        bytes.reserve(READ_BYTES);
        match input.read_buf(bytes).await {
            Ok(0) => return Err("has closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_in_any_split() {
        let stream: Vec<u8> = [&[0, 0, 0, 5, 0, 0, 0, 1, 9][..], &[0, 0, 0, 4, 0, 0, 0, 2]].concat();
        for split in 1..stream.len() {
            let (first, second) = stream.split_at(split);
            let (mut input, mut bytes) = (AsyncReadExt::chain(first, second), BytesMut::new());
            assert_eq!(&frame(&mut input, &mut bytes).await.unwrap()[..], &[0, 0, 0, 1, 9]);
            assert_eq!(&frame(&mut input, &mut bytes).await.unwrap()[..], &[0, 0, 0, 2]);
            assert_eq!(frame(&mut input, &mut bytes).await.unwrap_err(), "has closed the connection");
        }
    }

    #[tokio::test]
    async fn lengths_are_limited() {
        for length in [0_u32, 3, u32::MAX] {
            let (stream, mut bytes) = (length.to_be_bytes(), BytesMut::new());
            let error = frame(&mut &stream[..], &mut bytes).await.unwrap_err();
            assert!(error.contains("the limit is"), "{error}");
        }
    }
}
