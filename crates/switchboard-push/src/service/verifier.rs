//! Verification by a service of the application.

use super::v1::{self, VerifierClient};
use crate::{
    identity::{Credentials, Identity},
    verifier::{Verifier, Verify},
};
use std::time::{Duration, SystemTime};
use switchboard::{Channel, Status};

/// Time for a verification.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Verifies devices with the service `switchboard.push.v1.Verifier` of another server: one call for each connection.
///
/// ```no_run
/// use switchboard::Channel;
/// use switchboard_push::{Hub, ServiceVerifier};
///
/// # async fn example() -> switchboard::Result<()> {
/// let backend = Channel::connect("tcp://accounts:8080").await?;
/// let hub = Hub::builder().auth(ServiceVerifier::new(backend)).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ServiceVerifier {
    client: VerifierClient,
    timeout: Duration,
}

impl ServiceVerifier {
    /// Uses a channel to the service.
    pub fn new(channel: Channel) -> ServiceVerifier {
        ServiceVerifier { client: VerifierClient::new(channel), timeout: TIMEOUT }
    }

    /// Sets the time for a verification; default 5 s. A device is refused with `DeadlineExceeded` after it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ServiceVerifier {
        self.timeout = timeout;
        self
    }
}

impl Verifier for ServiceVerifier {
    fn verify(&self, credentials: &Credentials) -> Option<Verify> {
        let headers = credentials.metadata.iter().map(|(name, value)| v1::Header {
            name: name.to_owned(),
            value: value.clone(),
            ..Default::default()
        });
        let request = v1::VerifyRequest {
            protocol: credentials.protocol.to_owned(),
            token: credentials.token.clone(),
            user: credentials.claimed.user.clone(),
            key: credentials.claimed.key.clone().unwrap_or_default(),
            address: credentials.peer.address.clone(),
            headers: headers.collect(),
            ..Default::default()
        };
        let (client, timeout) = (self.client.clone(), self.timeout);
        Some(Box::pin(async move {
            let response = client.verify(request).timeout(timeout).await?.into_inner();
            let mut identity = Identity::new(response.user);
            identity.roles = response.roles;
            identity.key = Some(response.key).filter(|key| !key.is_empty());
            identity.rooms = response.rooms;
            if let Some(time) = response.expires_at.into_option() {
                let time = SystemTime::try_from(time).map_err(|error| {
                    Status::internal(format!("field expires_at of the verifier is not a time: {error}"))
                })?;
                identity.expires_at = Some(time);
            }
            Ok(identity)
        }))
    }
}
