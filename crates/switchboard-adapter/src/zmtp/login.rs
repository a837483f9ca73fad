//! Logins of peers with PLAIN: the username and the password are credentials of the server's `auth`.

use super::{
    adapter::ZmtpAdapter,
    feed::Command,
    peer::{Peer, Role},
};
use crate::{responses::flush, task::Task};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{future::Future, pin::Pin, sync::Arc};
use switchboard_core::{Caller, Result};
use switchboard_fanout::{CloseReason, Handle, SubscriberId, Subscribers};
use switchboard_wire::{Code, Metadata, Status, zmtp::Credentials};

/// Metadata with the credentials of a caller.
const AUTHORIZATION: &str = "authorization";
/// Username of peers whose password is a token; libzmq takes no empty username.
const BEARER: &[u8] = b"bearer";

/// A login whose credentials are checked. Dropping it ends the check.
#[derive(Debug)]
pub(super) struct Login {
    /// The credentials, for the calls of the peer.
    metadata: Metadata,
    _task: Task,
}

/// Result of the check of credentials.
type Checked = Result<Option<Arc<Caller>>>;

impl Login {
    /// Begins to check the credentials or the key of a peer, whose next bytes wait; [`Command::Verdict`] has the
    /// result. `unknown` is the error of a server that checks none of their kind.
    pub(super) fn begin(
        adapter: &mut ZmtpAdapter,
        id: SubscriberId,
        peer: &mut Peer,
        metadata: Metadata,
        unknown: &'static str,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        let Some(remote) = &peer.remote else {
            return Err(adapter.refuse(peer, &Status::internal("the other end is unknown")));
        };
        let checked = adapter.services.authenticate(remote, metadata.clone());
        let login = Login::spawn(id, metadata, checked, unknown, adapter.engine.clone());
        peer.role = Role::Handshake(Some(login));
        peer.is_paused = true;
        subscribers.pause(id);
        Ok(())
    }

    fn spawn(
        id: SubscriberId,
        metadata: Metadata,
        checked: Pin<Box<dyn Future<Output = Checked> + Send>>,
        unknown: &'static str,
        engine: Handle<ZmtpAdapter>,
    ) -> Login {
        let work = async move {
            let verdict = checked.await.and_then(|caller| match caller {
                Some(caller) => Ok(caller),
                None => Err(Status::unauthenticated(unknown)),
            });
            // An engine that has ended has no peers.
            let _ = engine.send(Command::Verdict(id, verdict)).await;
        };
        Login { metadata, _task: Task::spawn(work) }
    }

    /// Returns the credentials, once they were accepted.
    fn into_metadata(self) -> Metadata {
        self.metadata
    }
}

/// Returns credentials as the metadata that callers on other wires send: `Basic`, or `Bearer` with the password if
/// the username is `bearer` or empty.
///
/// # Errors
/// `Unauthenticated` for a username with a colon, which `Basic` cannot express, and for a token that is not plain text.
fn metadata(credentials: &Credentials) -> Result<Metadata> {
    let (username, password) = (credentials.username(), credentials.password());
    let mut metadata = Metadata::new();
    let value = if username.is_empty() || username.eq_ignore_ascii_case(BEARER) {
        [b"Bearer ", password].concat()
    } else if username.contains(&b':') {
        return Err(Status::unauthenticated("the username has a colon"));
    } else {
        format!("Basic {}", STANDARD.encode([username, b":", password].concat())).into_bytes()
    };
    metadata
        .insert(AUTHORIZATION, value)
        .map_err(|_| Status::unauthenticated("the password is a token that is not plain text"))?;
    Ok(metadata)
}

/// Returns the status of ZAP that an ERROR has for a refused login.
fn zap_status(status: &Status) -> &'static str {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => "400",
        // It may succeed later.
        Code::DeadlineExceeded | Code::ResourceExhausted | Code::Unavailable => "300",
        _ => "500",
    }
}

impl ZmtpAdapter {
    /// Begins to check the credentials of a peer, whose next bytes wait for the verdict.
    pub(super) fn log_in(
        &mut self,
        id: SubscriberId,
        peer: &mut Peer,
        credentials: &Credentials,
        subscribers: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        let unknown = "the server accepts no username with a password";
        match metadata(credentials) {
            Ok(metadata) => Login::begin(self, id, peer, metadata, unknown, subscribers),
            Err(status) => Err(self.refuse(peer, &status)),
        }
    }

    fn refuse(&mut self, peer: &mut Peer, status: &Status) -> CloseReason {
        peer.connection.reject(zap_status(status), &mut self.out);
        refused(status)
    }

    /// The credentials of a peer were checked.
    pub(super) fn verdict(
        &mut self,
        id: SubscriberId,
        verdict: Result<Arc<Caller>>,
        subscribers: &mut Subscribers,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Role::Handshake(login @ Some(_)) = &mut peer.role else { return };
        let login = login.take();
        peer.is_paused = false;
        match verdict {
            Ok(caller) => {
                peer.connection.accept(&mut self.out);
                flush(id, &mut self.out, subscribers);
                peer.caller = Some(caller);
                peer.credentials = login.map(Login::into_metadata).unwrap_or_default();
                subscribers.resume(id);
            }
            Err(status) => {
                peer.connection.reject(zap_status(&status), &mut self.out);
                flush(id, &mut self.out, subscribers);
                subscribers.close(id, refused(&status));
            }
        }
    }
}

/// Returns the reason to close a peer whose login was refused.
fn refused(status: &Status) -> CloseReason {
    CloseReason::Violation {
        name: "credentials",
        text: format!("login refused: {}", status.message()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(username: &'static str, password: &'static str) -> Result<String> {
        let metadata = metadata(&Credentials::new(username, password).unwrap())?;
        Ok(metadata.text(AUTHORIZATION).unwrap().to_owned())
    }

    #[test]
    fn credentials_have_the_form_of_other_wires() {
        // The example of RFC 7617.
        assert_eq!(value("Aladdin", "open sesame").unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(value("", "s3cr3t").unwrap(), "Bearer s3cr3t");
        assert_eq!(value("bearer", "s3cr3t").unwrap(), "Bearer s3cr3t");
        assert_eq!(value("a", "").unwrap(), "Basic YTo=");
        // It would be the name "a" with the password "b:c".
        assert!(value("a:b", "c").unwrap_err().message().contains("colon"));
        assert!(value("", "a\nb").unwrap_err().message().contains("plain text"));
    }

    #[test]
    fn an_error_has_a_status_of_zap() {
        assert_eq!(zap_status(&Status::unauthenticated("x")), "400");
        assert_eq!(zap_status(&Status::unavailable("x")), "300");
        assert_eq!(zap_status(&Status::internal("x")), "500");
    }
}
