//! The programs around the server, with nothing of Switchboard in them: a publisher as a library of Redis sends it, a
//! stream of events as a browser opens it, and a subscriber in Python.

use std::{io, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

/// Time limit for the lines of a program.
const PATIENCE: Duration = Duration::from_secs(20);
/// The subscriber in Python, from the root of the workspace.
const SUBSCRIBER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/prices/subscriber.py");

/// A connection that publishes in the protocol of Redis.
pub(crate) struct Publisher(BufReader<TcpStream>);

impl Publisher {
    pub(crate) async fn connect(address: &str) -> io::Result<Publisher> {
        Ok(Publisher(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// Returns the number of Redis subscribers that receive the message.
    pub(crate) async fn publish(&mut self, channel: &str, message: &str) -> io::Result<String> {
        let words = ["PUBLISH", channel, message].map(|word| format!("${}\r\n{word}\r\n", word.len()));
        self.0.write_all(format!("*3\r\n{}", words.concat()).as_bytes()).await?;
        let mut reply = String::new();
        timeout(PATIENCE, self.0.read_line(&mut reply)).await??;
        match reply.trim().strip_prefix(':') {
            Some(receivers) => Ok(receivers.to_owned()),
            None => Err(io::Error::other(format!("the server replied {reply:?}"))),
        }
    }
}

/// Lines of a program or of a stream.
pub(crate) struct Output<R> {
    lines: Lines<BufReader<R>>,
    /// Beginning of the lines that count; the rest of them is shown.
    prefix: &'static str,
    _child: Option<Child>,
}

impl<R: AsyncRead + Unpin> Output<R> {
    /// Returns the next lines.
    pub(crate) async fn read(mut self, count: usize) -> io::Result<Vec<String>> {
        let mut read = Vec::new();
        while read.len() < count {
            let line = self.next().await?;
            if let Some(rest) = line.strip_prefix(self.prefix) {
                read.push(rest.to_owned());
            }
        }
        Ok(read)
    }

    async fn next(&mut self) -> io::Result<String> {
        let line = timeout(PATIENCE, self.lines.next_line()).await??;
        line.ok_or_else(|| io::Error::other("the output has ended"))
    }
}

/// Opens the events of all prices as the page in `page.html` does.
pub(crate) async fn open_events(address: &str) -> io::Result<Output<TcpStream>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /events?topic=prices/* HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut output = Output { lines: BufReader::new(stream).lines(), prefix: "data: ", _child: None };
    // The first event has an id and no data: later prices are delivered.
    while !output.next().await?.starts_with("id:") {}
    Ok(output)
}

/// Starts the subscriber in Python, and waits until it receives; `None` if Python or pyzmq is missing.
pub(crate) async fn start_subscriber(
    address: &str,
) -> io::Result<Option<Output<tokio::process::ChildStdout>>> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.args(["-c", "import zmq"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !command.status().await.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let mut command = Command::new(python);
    command.args(["-u", SUBSCRIBER, address]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
    let mut output = Output { lines: BufReader::new(stdout).lines(), prefix: "prices/", _child: Some(child) };
    // ZeroMQ confirms no subscription: the program gets messages for a topic of its own until one arrives.
    let mut publisher = Publisher::connect(address).await?;
    loop {
        publisher.publish("ready", "now").await?;
        if let Ok(line) = timeout(Duration::from_millis(50), output.lines.next_line()).await {
            line?;
            break;
        }
    }
    Ok(Some(output))
}
