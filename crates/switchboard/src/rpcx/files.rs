//! File transfers: `_filetransfer/TransferFile` and `DownloadFile`.

use super::{
    Meta, Pipe,
    permits::{check_bytes, meta_bytes},
    side::Side,
    ticket::{Ticket, TicketRequest},
};
use std::{future, io, sync::Arc};
use switchboard_client::{Channel, ClientMethod};
use switchboard_core::{Call, Cx, Error, Reply, Result, Service, codec::serde::decode};
use switchboard_wire::{Kind, MethodInfo, ServiceInfo, Status};

static FILES: ServiceInfo = ServiceInfo {
    name: "_filetransfer",
    methods: &[MethodInfo::new("TransferFile", Kind::Unary), MethodInfo::new("DownloadFile", Kind::Unary)],
    descriptor: &[],
};
static UPLOAD: ClientMethod = ClientMethod { service: &FILES, index: 0, path: "_filetransfer/TransferFile" };
static DOWNLOAD: ClientMethod =
    ClientMethod { service: &FILES, index: 1, path: "_filetransfer/DownloadFile" };

/// Description of a file by a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct File {
    /// Name, an arbitrary text. Check it for `..` and `/` before using it as a path.
    pub name: String,
    /// Size of an upload in bytes.
    pub size: u64,
    /// Further metadata.
    pub meta: Meta,
}

impl File {
    /// Creates a description with this name.
    pub fn new(name: impl Into<String>) -> File {
        File { name: name.into(), ..File::default() }
    }

    /// Sets the size of an upload in bytes.
    #[must_use]
    pub fn size(self, bytes: u64) -> File {
        File { size: bytes, ..self }
    }

    /// Adds a metadata entry.
    #[must_use]
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<String>) -> File {
        self.meta.insert(name.into(), value.into());
        self
    }
}

/// Handles file transfers. Errors of `upload` and `download` cannot be reported to the client: they are
/// logged, and the connection ends early.
pub trait Files: Send + Sync + 'static {
    /// Checks whether the caller may send (`is_upload`) or fetch this file; by default every caller may.
    ///
    /// # Errors
    /// Returns the error of the client's call.
    fn check(&self, _file: &File, _is_upload: bool, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    /// Reads a file of `file.size` bytes; an earlier end of the pipe is an error.
    fn upload(&self, file: File, _pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send {
        future::ready(Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{} is not accepted", file.name),
        )))
    }

    /// Writes a file; the end of the pipe is the end of the file.
    fn download(&self, file: File, _pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send {
        future::ready(Err(io::Error::new(io::ErrorKind::NotFound, format!("file {} not found", file.name))))
    }
}

/// The service that issues tokens, and the listener that accepts them.
///
/// A token is valid for 30 s and one connection. One caller can have at most 256 tokens and connections at
/// once, with 256 KiB of names and metadata; all callers together at most 1024, with 1 MiB. Name and metadata
/// of a file are limited to 16 KiB. Calls above a limit fail with `ResourceExhausted`.
pub struct FileTransfer<F> {
    files: Arc<F>,
    side: Side<(File, bool)>,
}

impl<F: Files> FileTransfer<F> {
    /// Listens for files at `HOST:PORT`, in addition to the server that this service is
    /// [added](crate::Server::add) to. With port 0 the system chooses one.
    ///
    /// # Errors
    /// Fails if listening at the address fails.
    pub async fn listen(address: &str, files: F) -> Result<FileTransfer<F>, Error> {
        let files = Arc::new(files);
        let served = files.clone();
        let serve = move |(file, is_upload): (File, bool), pipe: Pipe| {
            let files = served.clone();
            async move {
                let name = file.name.clone();
                let ended = match is_upload {
                    true => {
                        let size = file.size;
                        files.upload(file, pipe.of_size(size)).await
                    }
                    false => files.download(file, pipe).await,
                };
                if let Err(error) = ended {
                    tracing::warn!(file = name, is_upload, "the file was not transferred: {error}");
                }
            }
        };
        let side = Side::listen(address, serve).await?;
        Ok(FileTransfer { files, side })
    }

    /// Sends clients the address `HOST:PORT` instead of the one of the listener.
    #[must_use]
    pub fn advertise(self, address: impl Into<String>) -> FileTransfer<F> {
        FileTransfer { side: self.side.advertise(address.into()), ..self }
    }
}

impl<F: Files> Service for FileTransfer<F> {
    fn info(&self) -> &'static ServiceInfo {
        &FILES
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, is_upload) = (call.codec(), call.method() == UPLOAD.index);
        let (bytes, cx) = call.into_one()?;
        check_bytes(bytes.len())?;
        let TicketRequest { file_name: name, file_size, meta } = decode(codec, bytes)?;
        let size = u64::try_from(file_size)
            .map_err(|_| Status::invalid_argument(format!("{name} has {file_size} bytes")))?;
        let file = File { name, size, meta: meta.unwrap_or_default() };
        let held = file.name.len() + meta_bytes(&file.meta);
        check_bytes(held)?;
        let ticket = self.files.check(&file, is_upload, &cx);
        let ticket = ticket.and_then(|()| self.side.ticket((file, is_upload), held, &cx)?.encode(codec));
        match ticket {
            Ok(ticket) => Ok(Reply::one(ticket, cx)),
            Err(status) => Err(cx.failed(status)),
        }
    }
}

/// Requests an upload of `file.size` bytes, which must be written to the pipe. There is no acknowledgement
/// that the server has received the file.
///
/// # Errors
/// Returns the errors of the call; `Unavailable` if the second connection fails; `PermissionDenied` if the
/// server names a host that is neither one of the channel nor one of
/// [`file_hosts`](switchboard_client::ChannelBuilder::file_hosts).
pub async fn upload(channel: &Channel, file: &File) -> Result<Pipe> {
    Ticket::of(channel, &UPLOAD, &file.request()?).await
}

/// Requests a file, which ends with the pipe. A server that fails during the transfer ends the pipe early,
/// without an error.
///
/// # Errors
/// Returns the errors of [`upload`].
pub async fn download(channel: &Channel, file: &File) -> Result<Pipe> {
    Ticket::of(channel, &DOWNLOAD, &file.request()?).await
}

impl File {
    fn request(&self) -> Result<TicketRequest> {
        let text = |_| Status::invalid_argument(format!("{} of {} bytes is too large", self.name, self.size));
        let file_size = i64::try_from(self.size).map_err(text)?;
        Ok(TicketRequest { file_name: self.name.clone(), file_size, meta: Some(self.meta.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Running, Server};
    use switchboard_wire::Code;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::mpsc,
    };

    /// Reports received files, and serves files of the requested size.
    struct Store(mpsc::UnboundedSender<(File, io::Result<Vec<u8>>)>);

    impl Files for Store {
        fn check(&self, file: &File, is_upload: bool, _cx: &Cx) -> Result<()> {
            match (is_upload, file.size) {
                (true, 1_000_001..) => Err(Status::resource_exhausted("1 MB is all there is room for")),
                _ => Ok(()),
            }
        }

        async fn upload(&self, file: File, mut pipe: Pipe) -> io::Result<()> {
            let mut content = Vec::new();
            let read = pipe.read_to_end(&mut content).await;
            self.0.send((file, read.map(|_| content))).map_err(io::Error::other)
        }

        async fn download(&self, file: File, mut pipe: Pipe) -> io::Result<()> {
            assert_eq!(file.meta["lines"], "3");
            for _ in 0..3 {
                pipe.write_all(format!("{}\n", file.name).as_bytes()).await?;
            }
            Ok(())
        }
    }

    async fn start() -> (Running, Channel, mpsc::UnboundedReceiver<(File, io::Result<Vec<u8>>)>) {
        let (sender, received) = mpsc::unbounded_channel();
        let files = FileTransfer::listen("127.0.0.1:0", Store(sender)).await.unwrap();
        let running = Server::new().add(files).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        (running, channel, received)
    }

    #[tokio::test]
    async fn files_go_both_ways() {
        let (_running, channel, mut sent) = start().await;
        let file = File::new("a.txt").size(1_000_000).meta("mode", "0644");
        let content = vec![7; 1_000_000];
        let mut pipe = upload(&channel, &file).await.unwrap();
        pipe.write_all(&content).await.unwrap();
        let (file_sent, read) = sent.recv().await.unwrap();
        assert_eq!(file_sent, file);
        assert!(read.unwrap() == content);

        let file = File::new("b.txt").meta("lines", "3");
        let mut content = String::new();
        download(&channel, &file).await.unwrap().read_to_string(&mut content).await.unwrap();
        assert_eq!(content, "b.txt\nb.txt\nb.txt\n");
    }

    #[tokio::test]
    async fn a_file_has_the_size_that_was_declared() {
        let (_running, channel, mut sent) = start().await;
        for (declared, written, read) in
            [(3, 5, Ok(3)), (5, 3, Err(io::ErrorKind::UnexpectedEof)), (0, 0, Ok(0))]
        {
            let mut pipe = upload(&channel, &File::new("x").size(declared)).await.unwrap();
            pipe.write_all(&vec![1; written]).await.unwrap();
            drop(pipe);
            let (_, content) = sent.recv().await.unwrap();
            assert_eq!(content.map(|content| content.len()).map_err(|error| error.kind()), read);
        }
        for (size, code) in [(1_000_001, Code::ResourceExhausted), (u64::MAX, Code::InvalidArgument)] {
            let refused = upload(&channel, &File::new("x").size(size)).await;
            assert_eq!(refused.unwrap_err().code(), code);
        }
    }

    #[tokio::test]
    async fn unsupported_transfers_end_at_once() {
        struct Nothing;
        impl Files for Nothing {}
        let files = FileTransfer::listen("127.0.0.1:0", Nothing).await.unwrap();
        let running = Server::new().add(files).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        let mut content = Vec::new();
        download(&channel, &File::new("x")).await.unwrap().read_to_end(&mut content).await.unwrap();
        assert!(content.is_empty());
        let elsewhere = FileTransfer::listen("127.0.0.1:0", Nothing).await.unwrap().advertise("127.0.0.1:1");
        let running = Server::new().add(elsewhere).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        let status = download(&channel, &File::new("x")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("to 127.0.0.1:1"), "{status}");
        let elsewhere =
            FileTransfer::listen("127.0.0.1:0", Nothing).await.unwrap().advertise("169.254.169.254:80");
        let running = Server::new().add(elsewhere).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        let status = download(&channel, &File::new("x")).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("only 127.0.0.1 may be dialled"), "{status}");
    }
    #[tokio::test]
    async fn tickets_hold_a_bounded_number_of_bytes() {
        struct Nothing;
        impl Files for Nothing {}
        // No listener is there: the tickets wait.
        let files = FileTransfer::listen("127.0.0.1:0", Nothing).await.unwrap().advertise("127.0.0.1:1");
        let running = Server::new().add(files).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        let file = |entries| {
            (0..entries).fold(File::new("x"), |file, entry: usize| file.meta(format!("{entry:05}"), ""))
        };
        for entries in [200, 100_000] {
            let refused = upload(&channel, &file(entries)).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            assert!(refused.message().contains("the limit is 16384"), "{refused}");
        }
        let mut issued = 0;
        let refused = loop {
            let status = upload(&channel, &file(100)).await.unwrap_err();
            match status.code() {
                // The ticket was issued, and its connection failed.
                Code::Unavailable => issued += 1,
                _ => break status,
            }
        };
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("this caller is 256 at once"), "{refused}");
        assert!(issued > 1, "{issued} tickets");
        let held = running.memory().held;
        assert!((issued * 100 * 128..=256 << 10).contains(&held), "{held} bytes of {issued} tickets");
    }
}
