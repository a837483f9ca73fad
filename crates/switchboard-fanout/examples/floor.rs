//! Fan-out of entries to many TCP subscribers by an engine, beside a bare loop of `send` on the same sockets.
//!
//! `cargo run --release -p switchboard-fanout --example floor -- [SUBSCRIBERS] [BYTES] [ROUNDS]` prints deliveries per
//! second of both, in turn, and their ratio. The next entry is published when the one before is delivered, so that no
//! two are merged in one write. Another process reads.

use bytes::Bytes;
use socket2::Socket;
use std::{
    env,
    error::Error,
    io::Read,
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use switchboard_fanout::{
    Adapter, BufferId, CloseReason, Connected, Engine, Handoff, Options, State, SubscriberId, Subscribers,
};
use switchboard_net::net::Pipe;
use switchboard_wire::Input;

/// Duration of one measurement.
const SPAN: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("read") {
        let port = arguments.next().ok_or("read PORT COUNT")?.parse()?;
        return read(port, arguments.next().ok_or("read PORT COUNT")?.parse()?);
    }
    let subscribers: usize = first.map_or(Ok(1000), |text| text.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let floor = with_reader(subscribers, |sockets| floor(&sockets, bytes))?;
        let engine = with_reader(subscribers, |sockets| engine(sockets, bytes))?;
        println!("floor {floor:.0}/s, engine {engine:.0}/s, ratio {:.3}", engine / floor);
        ratios.push(engine / floor);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3} ({subscribers} subscribers, {bytes} bytes)", ratios[ratios.len() / 2]);
    Ok(())
}

/// Runs a measurement with sockets whose other ends a process of its own reads.
fn with_reader(count: usize, measure: impl FnOnce(Vec<TcpStream>) -> Result<f64>) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let mut reader = Command::new(env::current_exe()?)
        .args(["read", &port.to_string(), &count.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    let sockets = (0..count).map(|_| Ok(listener.accept()?.0)).collect::<Result<Vec<_>>>()?;
    for socket in &sockets {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    let measured = measure(sockets);
    // It ends when all of its sockets are closed.
    reader.wait()?;
    measured
}

/// Reads all sockets until they are closed.
fn read(port: u16, count: usize) -> Result<()> {
    let mut poll = mio::Poll::new()?;
    let mut sockets = Vec::new();
    for index in 0..count {
        let mut socket = mio::net::TcpStream::from_std({
            let socket = TcpStream::connect(("127.0.0.1", port))?;
            socket.set_nonblocking(true)?;
            socket
        });
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
                    Ok(0) => {
                        sockets[event.token().0] = None;
                        open -= 1;
                        break;
                    }
                    Ok(n) if n < buffer.len() && !event.is_read_closed() => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}

/// The bare loop: each entry to each socket.
fn floor(sockets: &[TcpStream], bytes: usize) -> Result<f64> {
    let sockets =
        sockets.iter().map(|socket| Ok(socket.try_clone()?.into())).collect::<Result<Vec<Socket>>>()?;
    let (entry, began, mut deliveries) = (vec![7; bytes], Instant::now(), 0_u64);
    while began.elapsed() < SPAN {
        for socket in &sockets {
            while socket.send(&entry).is_err() {
                std::thread::yield_now();
            }
            deliveries += 1;
        }
    }
    Ok(deliveries as f64 / began.elapsed().as_secs_f64())
}

/// The adapter: every connection is a member of one buffer.
struct Everyone(Option<BufferId>);

impl Adapter for Everyone {
    type Command = Bytes;
    type Connection = ();

    fn connected(&mut self, connected: Connected<()>, subscribers: &mut Subscribers) {
        let buffer = *self.0.get_or_insert_with(|| subscribers.open_buffer());
        subscribers.attach(connected.id, buffer);
    }

    fn received(
        &mut self,
        _: SubscriberId,
        _: &mut Input,
        _: &mut Subscribers,
    ) -> std::result::Result<(), CloseReason> {
        Ok(())
    }

    fn command(&mut self, entry: Bytes, subscribers: &mut Subscribers) {
        if let Some(buffer) = self.0 {
            subscribers.append(buffer, &entry, &Bytes::new());
        }
    }

    fn due(&mut self, _: SubscriberId, _: &mut Subscribers) {}

    fn lagged(&mut self, _: SubscriberId, _: BufferId, _: u64, _: &mut Subscribers) {}

    fn disconnected(&mut self, _: SubscriberId, _: &CloseReason, _: State, _: &mut Subscribers) {}
}

fn engine(sockets: Vec<TcpStream>, bytes: usize) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (engine, handle) = Engine::new(Everyone(None), Options::default(), None)?;
        let engine = tokio::spawn(engine.run());
        let count = sockets.len();
        for socket in sockets {
            handle.hand_over(Handoff::from_pipe(Pipe::Tcp(socket), ())?)?;
        }
        handle.query(|_, _| ()).await.ok_or("the engine has ended")?;
        let entry = Bytes::from(vec![7; bytes]);
        let (began, mut entries) = (Instant::now(), 0_u64);
        while began.elapsed() < SPAN {
            handle.try_send(entry.clone())?;
            // Answered after the turns that deliver the entry.
            while !handle.query(|_, subscribers| subscribers.is_idle()).await.unwrap_or(true) {}
            entries += 1;
        }
        let rate = (entries * count as u64) as f64 / began.elapsed().as_secs_f64();
        engine.abort();
        Ok(rate)
    })
}
