//! Handover of listening sockets from a running process to its successor, so that a restart rejects no
//! connection.
//!
//! Both processes use the same path of a Unix socket, on which the running server listens. A new server
//! requests the listening sockets from it (`SCM_RIGHTS`), accepts on those whose address it also has, and
//! binds the rest. When it is ready it sends a message with the names of its registrations, and the old
//! server stops normally, but keeps the registrations that both have. The sockets never close, so callers
//! that connect meanwhile wait in the accept queue.
//!
//! Only processes of the same user, and of root, are served. If a successor never becomes ready, closing its
//! connection releases the sockets it received, and the old server continues.

mod descriptors;

use descriptors::{receive, send};
use rustix::process::geteuid;
use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::Path,
    time::Duration,
};
use switchboard_core::Error;
use switchboard_net::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::AbortHandle,
    time::timeout,
};

/// Maximum bytes of their addresses.
const NAMES_BYTES_MAX: usize = 16 << 10;
/// Time limit for responses of the other process.
const PATIENCE: Duration = Duration::from_secs(5);
/// Message of the new server when it serves. Names of registrations follow: their length in two bytes,
/// little-endian, and one line for each. Earlier versions send only this byte.
const READY: u8 = b'R';

/// Sockets of the previous server, which serves until this one reports that it is ready.
#[derive(Default)]
pub(super) struct Inherited {
    sockets: Vec<(String, OwnedFd)>,
    from: Option<UnixStream>,
}

impl Inherited {
    /// Requests the sockets from the server that listens at `path`, if there is one.
    ///
    /// # Errors
    /// Fails if the server does not respond or belongs to another user, and if the path is not a socket of
    /// this user.
    pub(super) async fn request(path: &Path) -> Result<Inherited, Error> {
        let failed = |error| Error::bind(format!("handover at {}: {error}", path.display()), error);
        check_path(path).map_err(failed)?;
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            // No server was here, or it was killed.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(Inherited::default());
            }
            Err(error) => return Err(failed(error)),
        };
        if !is_own(&stream) {
            return Err(failed(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "another user listens there",
            )));
        }
        let receive = async {
            loop {
                stream.readable().await?;
                match stream.try_io(Interest::READABLE, || receive(stream.as_fd())) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    received => return received,
                }
            }
        };
        let sockets = match timeout(PATIENCE, receive).await {
            Ok(received) => received.map_err(failed)?,
            Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
        };
        Ok(Inherited { sockets, from: Some(stream) })
    }

    /// Takes the socket that listens at this address, if there is one.
    pub(super) fn take(&mut self, address: &Address) -> Option<std::net::TcpListener> {
        let at = self.sockets.iter().position(|(known, _)| *known == key(address))?;
        let listener = std::net::TcpListener::from(self.sockets.swap_remove(at).1);
        listener.set_nonblocking(true).ok()?;
        Some(listener)
    }

    /// Reports that this server is ready and keeps these registrations; the previous server then stops.
    pub(super) async fn ready(self, registrations: &[String]) {
        if let Some(mut from) = self.from {
            let mut lines = String::new();
            for name in registrations.iter().filter(|name| !name.contains('\n')) {
                // Omitted registrations are registered again after a short gap.
                if lines.len() + name.len() < NAMES_BYTES_MAX {
                    lines.push_str(name);
                    lines.push('\n');
                }
            }
            let length = (lines.len() as u16).to_le_bytes();
            // The previous server may be gone already.
            let _ = from.write_all(&[&[READY], &length[..], lines.as_bytes()].concat()).await;
            // The previous server closes the connection after it has released the path.
            let _ = timeout(PATIENCE, from.read(&mut [0])).await;
        }
    }
}

/// Waits at a path for successors.
pub(super) struct Waiting {
    task: AbortHandle,
    taken: watch::Receiver<bool>,
}

impl Waiting {
    /// Offers these sockets, under their configured and their actual addresses. The names of registrations
    /// that a successor keeps go to `registrations`.
    ///
    /// # Errors
    /// Fails if the path cannot be listened on, or if it is not a socket of this user; such a file is not
    /// replaced.
    pub(super) fn at(
        path: &Path,
        sockets: Vec<(String, OwnedFd)>,
        registrations: watch::Sender<Vec<String>>,
    ) -> Result<Waiting, Error> {
        let failed = |error| Error::bind(format!("handover at {}: {error}", path.display()), error);
        check_path(path).map_err(failed)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let (taken_sender, taken) = watch::channel(false);
        let task = switchboard_core::runtime::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !is_own(&stream) {
                    continue;
                }
                if let Some(taken) = hand_over(stream, &sockets).await {
                    registrations.send_replace(taken);
                    taken_sender.send_replace(true);
                    return;
                }
            }
        });
        Ok(Waiting { task: task.abort_handle(), taken })
    }

    /// Returns whether a successor serves.
    pub(super) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Resolves when a successor serves. Cancel safe.
    pub(super) async fn taken(&self) {
        let mut taken = self.taken.clone();
        if taken.wait_for(|taken| *taken).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends the sockets; returns the names of the registrations that the successor keeps, if it took over.
async fn hand_over(mut stream: UnixStream, sockets: &[(String, OwnedFd)]) -> Option<Vec<String>> {
    let sent = async {
        loop {
            stream.writable().await?;
            match stream.try_io(Interest::WRITABLE, || send(stream.as_fd(), sockets)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
    };
    if let Err(error) = timeout(PATIENCE, sent).await.ok()? {
        tracing::warn!("listeners were not handed over: {error}");
        return None;
    }
    // No time limit: the successor may need any time to become ready, and its end closes the connection.
    let mut head = [0; 3];
    let count = stream.read(&mut head).await.ok()?;
    if count == 0 || head[0] != READY {
        return None;
    }
    let rest = async {
        stream.read_exact(&mut head[count..]).await?;
        let mut lines = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]]))];
        stream.read_exact(&mut lines).await?;
        Ok::<_, io::Error>(lines)
    };
    // A successor that sends no names keeps no registrations.
    let lines = match count {
        1 => Vec::new(),
        _ => timeout(PATIENCE, rest).await.ok().and_then(Result::ok).unwrap_or_default(),
    };
    Some(String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect())
}

/// Returns whether the peer process belongs to the same user or to root.
fn is_own(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| is_own_user(peer.uid()))
}

/// Returns whether this is the user of this process, or root.
fn is_own_user(user: u32) -> bool {
    user == geteuid().as_raw() || user == 0
}

/// Rejects a path that is not a socket of this user or of root: otherwise the listeners would be exchanged
/// with another user's process, or a file would be deleted.
fn check_path(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    if found.file_type().is_symlink() {
        return refused("the path is a symbolic link; name the socket itself");
    }
    if !found.file_type().is_socket() {
        return refused("the path is not a socket; name one that is, or a path where nothing is");
    }
    if !is_own_user(found.uid()) {
        return refused("the socket belongs to another user; name a path of this user");
    }
    Ok(())
}

/// Returns the configuration name of an address; TLS addresses are named as TCP, because the socket is the
/// same.
pub(super) fn key(address: &Address) -> String {
    match address {
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host} {port}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[tokio::test]
    async fn only_a_socket_of_this_user_is_used_and_replaced() {
        let folder = std::env::temp_dir().join(format!("switchboard-handover-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (socket, file, link) = (folder.join("socket"), folder.join("file"), folder.join("link"));
        let wait = |path: &Path| Waiting::at(path, Vec::new(), watch::channel(Vec::new()).0);
        let waiting = wait(&socket).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "precious").unwrap();
        symlink(&socket, &link).unwrap();
        for (path, why) in
            [(&file, "is not a socket"), (&link, "is a symbolic link"), (&folder, "is not a socket")]
        {
            let refused = wait(path).err().expect("it is no socket").to_string();
            assert!(refused.contains(why), "{refused}");
            let refused = Inherited::request(path).await.err().expect("it is no socket").to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert!(link.is_symlink());
        // A socket of the same user is used, and replaced.
        assert!(Inherited::request(&socket).await.unwrap().from.is_some());
        drop(waiting);
        wait(&socket).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
