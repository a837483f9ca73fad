//! Fan-out of one topic to SUB peers of ZMTP by the plugin, beside a bare loop of `send` of the same bytes.
//!
//! `cargo run --release -p switchboard-adapter --example zmtp_fanout -- [PEERS] [BYTES] [ROUNDS]` prints deliveries per
//! second of both, in turn, and the ratios of deliveries per second and per second of the processor: the latter depends
//! less on other work of the machine. The next entry is published when the last peer has the one before, so that no
//! two are merged in one write. Another process reads.

use bytes::{Bytes, BytesMut};
use std::{
    env,
    error::Error,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_adapter::{ZMTP, Zmtp};
use switchboard_core::{Flag, Limits, Peer, limits::Unit, memory::MemoryBudget};
use switchboard_message::{Bus, Publication};
use switchboard_net::{
    net::Pipe,
    plugin::{Plugin, PluginConnection, PluginContext},
};
use switchboard_wire::{Codec, WireId};

/// Duration of one measurement.
const SPAN: Duration = Duration::from_secs(1);
/// Bytes of an entry on the wire in addition to its content: two headers of frames, and the name of the topic.
const HEADERS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("read") {
        let port = arguments.next().ok_or("read PORT COUNT")?.parse()?;
        return read(port, arguments.next().ok_or("read PORT COUNT")?.parse()?);
    }
    let peers: usize = first.map_or(Ok(1000), |text| text.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let (mut by_time, mut by_processor) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let floor = with_reader(peers, |sockets, _| floor(&sockets, bytes))?;
        let plugin = with_reader(peers, |sockets, probe| plugin(sockets, probe, bytes))?;
        let ratios = (plugin.by_time / floor.by_time, plugin.by_processor / floor.by_processor);
        println!(
            "floor {:.0}/s, plugin {:.0}/s, ratio {:.3}; per second of the processor {:.0}, {:.0}, {:.3}",
            floor.by_time, plugin.by_time, ratios.0, floor.by_processor, plugin.by_processor, ratios.1
        );
        by_time.push(ratios.0);
        by_processor.push(ratios.1);
    }
    let median = |mut ratios: Vec<f64>| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    let (by_time, by_processor) = (median(by_time), median(by_processor));
    println!(
        "median ratio {by_time:.3}, per second of the processor {by_processor:.3} ({peers} SUB peers, {bytes} bytes)"
    );
    Ok(())
}

/// Deliveries per second, and per second of the processor that this thread had.
struct Rate {
    by_time: f64,
    by_processor: f64,
}

struct Clock {
    began: Instant,
    processor: Duration,
}

impl Clock {
    fn start() -> Result<Clock> {
        Ok(Clock { began: Instant::now(), processor: processor()? })
    }

    fn rate(&self, deliveries: u64) -> Result<Rate> {
        let (time, used) = (self.began.elapsed(), processor()?.saturating_sub(self.processor));
        Ok(Rate {
            by_time: deliveries as f64 / time.as_secs_f64(),
            by_processor: deliveries as f64 / used.as_secs_f64(),
        })
    }
}

/// Time that this thread had a processor (Linux).
fn processor() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split(' ').next().ok_or("no time in schedstat")?.parse()?))
}

/// Runs a measurement with accepted sockets, whose other ends a process of its own reads; that of the last one is in
/// this process.
fn with_reader(
    count: usize,
    measure: impl FnOnce(Vec<TcpStream>, TcpStream) -> Result<Rate>,
) -> Result<Rate> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let others = count.saturating_sub(1);
    let mut reader = Command::new(env::current_exe()?)
        .args(["read", &port.to_string(), &others.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut sockets = (0..others).map(|_| Ok(listener.accept()?.0)).collect::<Result<Vec<TcpStream>>>()?;
    let probe = subscriber(port)?;
    sockets.push(listener.accept()?.0);
    for socket in &sockets {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    let measured = measure(sockets, probe);
    // It ends when all of its sockets are closed.
    reader.wait()?;
    measured
}

/// Connects a SUB with a subscription, which sends all of its bytes at once.
fn subscriber(port: u16) -> Result<TcpStream> {
    let mut bytes = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB\x04\x0b\x09SUBSCRIBEt");
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.write_all(&bytes)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Reads all sockets until they are closed.
fn read(port: u16, count: usize) -> Result<()> {
    let mut poll = mio::Poll::new()?;
    let mut sockets = Vec::new();
    for index in 0..count {
        let mut socket = mio::net::TcpStream::from_std(subscriber(port)?);
        poll.registry().register(&mut socket, mio::Token(index), mio::Interest::READABLE)?;
        sockets.push(Some(socket));
    }
    let (mut events, mut buffer, mut open) = (mio::Events::with_capacity(1024), vec![0; 64 << 10], count);
    while open > 0 {
        poll.poll(&mut events, None)?;
        for event in &events {
            let Some(socket) = &mut sockets[event.token().0] else { continue };
            loop {
                match socket.read(&mut buffer) {
                    Ok(n) if n > 0 && n < buffer.len() && !event.is_read_closed() => break,
                    Ok(n) if n > 0 => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The end, or a reset: the bare loop does not read what its peers send.
                    Ok(_) | Err(_) => {
                        sockets[event.token().0] = None;
                        open -= 1;
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The bare loop: each entry to each socket.
fn floor(sockets: &[TcpStream], bytes: usize) -> Result<Rate> {
    let (entry, clock, mut deliveries) = (vec![7; bytes + HEADERS], Clock::start()?, 0_u64);
    while clock.began.elapsed() < SPAN {
        for mut socket in sockets {
            while socket.write(&entry).is_err() {
                std::thread::yield_now();
            }
            deliveries += 1;
        }
    }
    clock.rate(deliveries)
}

fn plugin(sockets: Vec<TcpStream>, mut probe: TcpStream, bytes: usize) -> Result<Rate> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bus = Bus::new();
        let zmtp = Zmtp::new(bus.clone());
        let budget = Flag::new("memory_bytes_max", Unit::Bytes, 1 << 40, 0..=1 << 40, "memory");
        let memory = Arc::new(MemoryBudget::new(budget, 1));
        let server = zmtp.start(PluginContext::new(memory, Limits::default()))?;
        let (wire, limits) = (WireId::register(&ZMTP)?, Arc::new(Limits::default()));
        let count = sockets.len() as u64;
        for socket in sockets {
            let peer = Peer::connected(String::new(), None);
            let io = Pipe::Tcp(socket).adopt()?;
            server.connect(PluginConnection::new(io, BytesMut::new(), wire, peer, limits.clone()));
        }
        // The first entry that arrives shows that the handshakes are complete: the probe is the last one.
        let publication = || Publication::new(Codec::Raw, Bytes::from(vec![7; bytes]));
        let mut buffer = vec![0; 64 << 10];
        let mut has_entry = async |wanted: usize| {
            let mut read = 0;
            while read < wanted {
                match probe.read(&mut buffer) {
                    Ok(n) => read += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::task::yield_now().await,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        // The greeting and READY of the server.
        has_entry(64 + 2 + 25).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (clock, mut entries) = (Clock::start()?, 0_u64);
        while clock.began.elapsed() < SPAN {
            bus.publish_encoded("t", publication()).await?;
            has_entry(bytes + HEADERS).await?;
            entries += 1;
        }
        let rate = clock.rate(entries * count);
        server.abort();
        rate
    })
}
