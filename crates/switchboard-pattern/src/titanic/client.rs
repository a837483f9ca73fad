//! Clients of the services of Titanic.

use super::RequestId;
use crate::majordomo;
use std::time::Duration;
use switchboard_core::Result;
use switchboard_socket::Message;
use switchboard_wire::Status;

/// A client of the services of Titanic, through a client of Majordomo.
#[derive(Clone, Debug)]
pub struct Client(majordomo::Client);

impl Client {
    /// Creates a client that uses the connections and options of `client`.
    pub fn new(client: majordomo::Client) -> Client {
        Client(client)
    }

    /// Stores a request to a service. It is on disk when the future resolves, see
    /// [`SyncPolicy`](super::SyncPolicy).
    ///
    /// With an error the request may be stored or not; a retry may store it twice.
    ///
    /// # Errors
    /// Returns `ResourceExhausted` or `Internal` with the reason of the server, `InvalidArgument` for a name that is
    /// not valid, and the errors of [`RequestBuilder::send`](majordomo::RequestBuilder::send).
    pub async fn store(&self, service: &str, body: impl Into<Message>) -> Result<RequestId> {
        let mut frames = body.into().into_frames();
        frames.insert(0, bytes::Bytes::copy_from_slice(service.as_bytes()));
        let reply = self.call("titanic.request", Message::from(frames)).await?;
        let id = reply.first().and_then(|id| std::str::from_utf8(id).ok());
        id.ok_or_else(|| Status::internal("the reply of titanic.request has no number"))?.parse()
    }

    /// Fetches the reply to a request; `None` if there is none yet. The reply stays until it is closed.
    ///
    /// # Errors
    /// Returns `NotFound` for an unknown number, and the errors of [`store`](Self::store).
    pub async fn fetch(&self, id: RequestId) -> Result<Option<Message>> {
        match self.call("titanic.reply", Message::from(id.to_string())).await {
            Ok(frames) => Ok(Some(Message::from(frames))),
            Err(failure) if failure.message().starts_with("300") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Fetches the reply to a request, and again after each pause until there is one.
    ///
    /// # Errors
    /// Returns the errors of [`fetch`](Self::fetch).
    pub async fn wait(&self, id: RequestId, pause: Duration) -> Result<Message> {
        loop {
            if let Some(reply) = self.fetch(id).await? {
                return Ok(reply);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Deletes a request and its reply. An unknown number is no error.
    ///
    /// # Errors
    /// Returns the errors of [`store`](Self::store).
    pub async fn close(&self, id: RequestId) -> Result<()> {
        self.call("titanic.close", Message::from(id.to_string())).await.map(|_| ())
    }

    /// Calls a service and returns the frames after the status.
    async fn call(&self, service: &str, body: Message) -> Result<Vec<bytes::Bytes>> {
        let mut frames = self.0.request(service, body).await?.into_frames();
        if frames.is_empty() {
            return Err(Status::internal(format!("the reply of {service} has no status")));
        }
        let status = frames.remove(0);
        let text = String::from_utf8_lossy(&status).into_owned();
        match status.get(..3) {
            Some(b"200") => Ok(frames),
            Some(b"300") => Err(Status::unavailable(text)),
            Some(b"400") => Err(Status::not_found(text)),
            Some(b"500") if text.contains("_max") => Err(Status::resource_exhausted(text)),
            _ => Err(Status::internal(text)),
        }
    }
}
