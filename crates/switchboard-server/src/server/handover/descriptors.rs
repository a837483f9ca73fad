//! Messages that carry sockets between processes (`SCM_RIGHTS`), on Linux and on Apple systems.

use super::NAMES_BYTES_MAX;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::{
    io,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Maximum number of sockets handed over; Linux accepts 253 per message.
const LISTENERS_MAX: usize = 64;

/// Sends these sockets with their names in one message.
///
/// # Errors
/// Returns `WouldBlock` when the message does not fit at the moment, and `BrokenPipe` when the peer has closed the
/// connection.
pub(super) fn send(to: BorrowedFd<'_>, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    let sockets = &sockets[..sockets.len().min(LISTENERS_MAX)];
    // At least one byte is required: file descriptors cannot be sent alone.
    let names = sockets.iter().map(|(name, _)| format!("{name}\n")).collect::<String>() + "\n";
    let rights: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !rights.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = without_signal(to)?;
    let sent = sendmsg(to, &[IoSlice::new(names.as_bytes())], &mut ancillary, flags)?;
    if sent < names.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// Receives sockets with their names. Programs that this process starts do not inherit them.
pub(super) fn receive(from: BorrowedFd<'_>) -> io::Result<Vec<(String, OwnedFd)>> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(from, &mut [IoSliceMut::new(&mut names)], &mut ancillary, RECEIVE_FLAGS)?;
    let mut rights = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            rights.extend(received);
        }
    }
    close_on_exec(&rights)?;
    let names = String::from_utf8_lossy(&names[..message.bytes]);
    Ok(names.lines().map(str::to_owned).zip(rights).collect())
}

#[cfg(not(target_vendor = "apple"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// Apple systems have no flag for it; see [`close_on_exec`].
#[cfg(target_vendor = "apple")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

/// Returns the flags with which sending to a closed connection fails and raises no SIGPIPE.
#[cfg(not(target_vendor = "apple"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "an option of the socket takes its place on Apple systems, and can fail"
)]
fn without_signal(_: BorrowedFd<'_>) -> io::Result<SendFlags> {
    Ok(SendFlags::NOSIGNAL)
}

/// Sets the option of the socket with which sending to a closed connection fails and raises no SIGPIPE.
#[cfg(target_vendor = "apple")]
fn without_signal(socket: BorrowedFd<'_>) -> io::Result<SendFlags> {
    rustix::net::sockopt::set_socket_nosigpipe(socket, true)?;
    Ok(SendFlags::empty())
}

/// Does nothing: the sockets were received with the flag.
#[cfg(not(target_vendor = "apple"))]
#[expect(clippy::unnecessary_wraps, reason = "the flag is set by a call on Apple systems, which can fail")]
fn close_on_exec(_: &[OwnedFd]) -> io::Result<()> {
    Ok(())
}

/// Sets the flag with which started programs do not inherit the sockets. A program that another thread starts between
/// the receipt and this call inherits them.
#[cfg(target_vendor = "apple")]
fn close_on_exec(sockets: &[OwnedFd]) -> io::Result<()> {
    use rustix::io::{FdFlags, fcntl_setfd};
    sockets.iter().try_for_each(|socket| fcntl_setfd(socket, FdFlags::CLOEXEC)).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::{net::TcpListener, os::unix::net::UnixStream};

    #[test]
    fn sockets_arrive_with_their_names_and_are_not_inherited_by_programs() {
        let (old, new) = UnixStream::pair().unwrap();
        let listeners =
            [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let sockets: Vec<_> =
            ["a 1", "b 2"].map(str::to_owned).into_iter().zip(listeners.map(Into::into)).collect();
        send(old.as_fd(), &sockets).unwrap();
        let received = receive(new.as_fd()).unwrap();
        assert_eq!(received.len(), 2);
        for ((name, socket), (expected, address)) in
            received.into_iter().zip(["a 1", "b 2"].iter().zip(addresses))
        {
            assert_eq!(name, *expected);
            assert!(fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
            assert_eq!(TcpListener::from(socket).local_addr().unwrap(), address);
        }
    }

    #[test]
    fn sending_to_a_closed_connection_is_an_error() {
        let (old, new) = UnixStream::pair().unwrap();
        drop(new);
        assert_eq!(send(old.as_fd(), &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
