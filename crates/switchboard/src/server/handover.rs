//! Listeners that go from a running process to its successor, so that a restart refuses nobody.
//!
//! Both name the same path of a Unix socket. The running server listens there. A new one that starts asks it for its
//! listening sockets (`SCM_RIGHTS`), goes on accepting on those whose address it wants too, and binds the rest. When
//! it is ready it says so, with what it tells registries of itself, and the old one stops as if it had been told to,
//! but for the registrations that are the same. The sockets themselves never close, so callers that come meanwhile
//! wait in their queue.
//!
//! Only processes of the same user, and those of root, are answered. What a successor that never gets ready holds is
//! given up with its connection, and the old server goes on.

use crate::{Address, Error};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::{
    fs, io,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::AbortHandle,
    time::timeout,
};

/// Listeners that are handed over; the kernel takes 253 at once.
const LISTENERS_MAX: usize = 64;
/// Bytes of their addresses.
const NAMES_BYTES_MAX: usize = 16 << 10;
/// What the old server has to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the new one says when it serves. Names of registrations follow: their length in two bytes, the lowest first,
/// and a line for each. One of before that was so knows the byte alone.
const READY: u8 = b'R';

/// Sockets of the server before this one, which serves until it is told that this one is ready.
#[derive(Default)]
pub(super) struct Inherited {
    sockets: Vec<(String, OwnedFd)>,
    from: Option<UnixStream>,
}

impl Inherited {
    /// Asks the server that listens at `path`, if there is one.
    ///
    /// # Errors
    /// A server that does not answer, or is another user's.
    pub(super) async fn ask(path: &Path) -> Result<Inherited, Error> {
        let failed = |error| Error::bind(format!("handover at {}: {error}", path.display()), error);
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            // Nobody was here, or whoever was has been killed.
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

    /// The socket that listens at this address, if there is one.
    pub(super) fn take(&mut self, address: &Address) -> Option<std::net::TcpListener> {
        let at = self.sockets.iter().position(|(known, _)| *known == key(address))?;
        let listener = std::net::TcpListener::from(self.sockets.swap_remove(at).1);
        listener.set_nonblocking(true).ok()?;
        Some(listener)
    }

    /// The server is ready, and keeps these registrations: the one before it may stop.
    pub(super) async fn ready(self, registrations: &[String]) {
        if let Some(mut from) = self.from {
            let mut lines = String::new();
            for name in registrations.iter().filter(|name| !name.contains('\n')) {
                // What is left out is registered again, after a moment without.
                if lines.len() + name.len() < NAMES_BYTES_MAX {
                    lines.push_str(name);
                    lines.push('\n');
                }
            }
            let length = (lines.len() as u16).to_le_bytes();
            // It may be gone already.
            let _ = from.write_all(&[&[READY], &length[..], lines.as_bytes()].concat()).await;
            // It has let go of the path when it closes.
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
    /// Offers these sockets, by what their addresses are called in configurations and in fact. The names of
    /// registrations that a successor keeps go to `registrations`.
    ///
    /// # Errors
    /// A path where nothing can listen.
    pub(super) fn at(
        path: &Path,
        sockets: Vec<(String, OwnedFd)>,
        registrations: watch::Sender<Vec<String>>,
    ) -> Result<Waiting, Error> {
        let failed = |error| Error::bind(format!("handover at {}: {error}", path.display()), error);
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let (tell, taken) = watch::channel(false);
        let task = crate::runtime::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !is_own(&stream) {
                    continue;
                }
                if let Some(taken) = hand_over(stream, &sockets).await {
                    registrations.send_replace(taken);
                    tell.send_replace(true);
                    return;
                }
            }
        });
        Ok(Waiting { task: task.abort_handle(), taken })
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

/// Sends the sockets; the names of the registrations that the successor keeps, if it took over.
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
    // It gets ready for as long as it needs; its end ends this too.
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
    // A successor that says no more keeps none.
    let lines = match count {
        1 => Vec::new(),
        _ => timeout(PATIENCE, rest).await.ok().and_then(Result::ok).unwrap_or_default(),
    };
    Some(String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect())
}

fn send(to: BorrowedFd<'_>, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    let sockets = &sockets[..sockets.len().min(LISTENERS_MAX)];
    // One byte at least: rights do not travel alone.
    let names = sockets.iter().map(|(name, _)| format!("{name}\n")).collect::<String>() + "\n";
    let rights: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !rights.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let sent = sendmsg(to, &[IoSlice::new(names.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent < names.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

fn receive(from: BorrowedFd<'_>) -> io::Result<Vec<(String, OwnedFd)>> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(from, &mut [IoSliceMut::new(&mut names)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let rights = ancillary.drain().flat_map(|part| match part {
        RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let names = String::from_utf8_lossy(&names[..message.bytes]);
    Ok(names.lines().map(str::to_owned).zip(rights).collect())
}

/// Of the same user, or of root.
fn is_own(stream: &UnixStream) -> bool {
    let own = fs::metadata("/proc/self").map(|process| process.uid());
    let peer = stream.peer_cred().map(|peer| peer.uid());
    matches!((own, peer), (Ok(own), Ok(peer)) if own == peer || peer == 0)
}

/// What a socket of this address is called: TLS is not the socket's business.
pub(super) fn key(address: &Address) -> String {
    match address {
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host} {port}"),
        other => other.to_string(),
    }
}
