//! A hostile peer: a thread with non-blocking sockets, and its observations of the server.

use super::wire::{MARKER, Wire};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Time limit that only a hang reaches.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two polls of a socket that is not ready.
const PAUSE: Duration = Duration::from_micros(200);
/// Connections that may wait to be accepted.
const AHEAD: u64 = 16;
/// A server that takes nothing for so long has stopped to read.
const STALL: Duration = Duration::from_millis(30);

/// One run of one strategy.
pub struct Attack {
    pub wire: &'static Wire,
    pub address: SocketAddr,
    pub stop: AtomicBool,
    /// Connections that the peer has opened, and those of them that the server has accepted.
    pub opened: AtomicU64,
    pub accepted: AtomicU64,
    /// Rounds, frames or bytes: whatever the strategy counts.
    pub deeds: AtomicU64,
    /// Violations by the server.
    pub faults: Mutex<Vec<String>>,
}

impl Attack {
    pub fn new(wire: &'static Wire, address: SocketAddr) -> Attack {
        let [opened, accepted, deeds] = [const { AtomicU64::new(0) }; 3];
        let (stop, faults) = (AtomicBool::new(false), Mutex::default());
        Attack { wire, address, stop, opened, accepted, deeds, faults }
    }

    /// Returns whether the run takes its time.
    pub fn is_long(&self) -> bool {
        std::env::var_os("ADVERSARY_MILLIS").is_some()
    }

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn deed(&self) {
        self.deeds.fetch_add(1, Ordering::Relaxed);
    }

    pub fn fault(&self, fault: String) {
        let mut faults = self.faults.lock().unwrap();
        if faults.len() < 5 {
            faults.push(fault);
        }
    }

    /// Opens a connection without sending anything.
    pub fn silent(&self) -> Peer {
        // Nothing limits connections a second: this measures the work for accepted ones.
        while self.goes_on()
            && self.opened.load(Ordering::Relaxed) > self.accepted.load(Ordering::Relaxed) + AHEAD
        {
            sleep(PAUSE);
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None).unwrap();
        // A small buffer, so that unread bytes stay in the server and not in the system.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.set_tcp_nodelay(true).unwrap();
        let io = match socket.connect_timeout(&SockAddr::from(self.address), PATIENCE) {
            Ok(()) => {
                socket.set_nonblocking(true).unwrap();
                Some(socket.into())
            }
            Err(error) => {
                self.fault(format!("cannot connect: {error}"));
                None
            }
        };
        Peer { io, tail: Vec::new(), received: 0 }
    }

    /// Opens a connection and sends the first bytes of the wire.
    pub fn open(&self) -> Peer {
        let mut peer = self.silent();
        peer.push(self, &(self.wire.hello)());
        peer
    }

    /// Waits until the attack is over.
    pub fn rest(&self) {
        while self.goes_on() {
            sleep(Duration::from_millis(1));
        }
    }
}

/// How a server reacts to bytes that a peer sent it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reaction {
    /// The reply with the marker came.
    Answered,
    /// The connection ended.
    Ended,
    /// Other bytes came, and no marker after them.
    Said,
    /// Nothing came.
    Silent,
}

/// A connection of a hostile peer.
pub struct Peer {
    /// None once it has ended.
    io: Option<TcpStream>,
    /// The last bytes that came.
    tail: Vec<u8>,
    received: u64,
}

impl Peer {
    pub fn is_open(&self) -> bool {
        self.io.is_some()
    }

    /// Writes everything, and reads whatever comes meanwhile. False when the connection ended or the attack is over.
    pub fn push(&mut self, attack: &Attack, bytes: &[u8]) -> bool {
        self.write(attack, bytes, true)
    }

    /// Writes everything and reads nothing. False when the connection ended, the server no longer reads, or the attack
    /// is over.
    pub fn push_unread(&mut self, attack: &Attack, bytes: &[u8]) -> bool {
        self.write(attack, bytes, false)
    }

    fn write(&mut self, attack: &Attack, mut bytes: &[u8], reads: bool) -> bool {
        let mut moved = Instant::now();
        while !bytes.is_empty() {
            let Some(io) = &mut self.io else { return false };
            match io.write(bytes) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let stalled = moved.elapsed() > STALL;
                    if stalled && (!reads || !attack.goes_on()) {
                        return false;
                    }
                    if !reads || self.read_some() == 0 {
                        sleep(PAUSE);
                    }
                }
                Err(_) => self.io = None,
            }
        }
        true
    }

    /// Reads the available bytes; returns their number.
    pub fn read_some(&mut self) -> usize {
        let mut buffer = [0; 16 << 10];
        self.read_into(&mut buffer)
    }

    /// Reads one byte, if there is one.
    pub fn read_byte(&mut self) -> usize {
        self.read_into(&mut [0; 1])
    }

    fn read_into(&mut self, buffer: &mut [u8]) -> usize {
        let Some(io) = &mut self.io else { return 0 };
        match io.read(buffer) {
            Ok(n @ 1..) => {
                self.received += n as u64;
                self.tail.extend_from_slice(&buffer[..n]);
                let surplus = self.tail.len().saturating_sub(64 << 10);
                self.tail.drain(..surplus);
                n
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // An end or a reset.
            _ => {
                self.io = None;
                0
            }
        }
    }

    /// Forgets what came so far.
    pub fn forget(&mut self) {
        while self.read_some() > 0 {}
        self.tail.clear();
        self.received = 0;
    }

    /// Reads until the reply with the marker comes or the connection ends, within [`PATIENCE`].
    pub fn reaction(&mut self) -> Reaction {
        let began = Instant::now();
        loop {
            if self.tail.windows(MARKER.len()).any(|window| window == MARKER.as_bytes()) {
                return Reaction::Answered;
            }
            if self.io.is_none() {
                return Reaction::Ended;
            }
            if began.elapsed() > PATIENCE {
                return if self.received > 0 { Reaction::Said } else { Reaction::Silent };
            }
            if self.read_some() == 0 {
                sleep(PAUSE);
            }
        }
    }

    /// Waits until anything has come or the connection has ended.
    pub fn any_reaction(&mut self) -> Reaction {
        let began = Instant::now();
        while self.io.is_some() && self.received == 0 && began.elapsed() < PATIENCE {
            if self.read_some() == 0 {
                sleep(PAUSE);
            }
        }
        match self.io {
            None => Reaction::Ended,
            Some(_) if self.received > 0 => Reaction::Said,
            Some(_) => Reaction::Silent,
        }
    }

    /// Closes the sending half, and still reads.
    pub fn half_close(&mut self) {
        if let Some(io) = &self.io {
            let _ = io.shutdown(Shutdown::Write);
        }
    }

    /// Ends the connection with a reset, so that nothing of it is kept anywhere.
    pub fn reset(mut self) {
        if let Some(io) = self.io.take() {
            let _ = SockRef::from(&io).set_linger(Some(Duration::ZERO));
        }
    }

    /// Returns the last received bytes, for a message.
    pub fn heard(&self) -> String {
        let end = &self.tail[self.tail.len().saturating_sub(120)..];
        String::from_utf8_lossy(end).into_owned()
    }
}
