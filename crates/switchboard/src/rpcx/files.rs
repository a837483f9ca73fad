//! Files that clients send and fetch: `_filetransfer/TransferFile` and `DownloadFile`.

use super::{
    Meta, Pipe,
    side::Side,
    ticket::{Asked, Ticket},
};
use crate::{
    Call, Channel, ClientMethod, Cx, Error, Kind, MethodInfo, Reply, Result, Service, ServiceInfo, Status,
    codec::serde::decode,
};
use std::{future, io, sync::Arc};

static FILES: ServiceInfo = ServiceInfo {
    name: "_filetransfer",
    methods: &[MethodInfo::new("TransferFile", Kind::Unary), MethodInfo::new("DownloadFile", Kind::Unary)],
    descriptor: &[],
};
static UPLOAD: ClientMethod = ClientMethod { service: &FILES, index: 0, path: "_filetransfer/TransferFile" };
static DOWNLOAD: ClientMethod =
    ClientMethod { service: &FILES, index: 1, path: "_filetransfer/DownloadFile" };

/// What a client says of a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct File {
    /// Its name. Any text: whoever makes a path of it has to look for `..` and `/` first.
    pub name: String,
    /// Bytes of an upload.
    pub size: u64,
    /// What else there is to say.
    pub meta: Meta,
}

impl File {
    /// A file of this name.
    pub fn new(name: impl Into<String>) -> File {
        File { name: name.into(), ..File::default() }
    }

    /// Says how many bytes an upload has.
    #[must_use]
    pub fn size(self, bytes: u64) -> File {
        File { size: bytes, ..self }
    }

    /// Adds a word.
    #[must_use]
    pub fn meta(mut self, name: impl Into<String>, value: impl Into<String>) -> File {
        self.meta.insert(name.into(), value.into());
        self
    }
}

/// What becomes of files. Errors of `upload` and `download` have no way to the client: they are logged, and the
/// connection ends early.
pub trait Files: Send + Sync + 'static {
    /// Whether the caller may send (`is_upload`) or fetch this file; all may, unless this says otherwise.
    ///
    /// # Errors
    /// What the call of the client fails with.
    fn check(&self, _file: &File, _is_upload: bool, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    /// Reads a file of `file.size` bytes; the end of the pipe before is an error.
    fn upload(&self, file: File, _pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send {
        future::ready(Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{} was not asked for", file.name),
        )))
    }

    /// Writes a file; the end of the pipe is that of the file.
    fn download(&self, file: File, _pipe: Pipe) -> impl Future<Output = io::Result<()>> + Send {
        future::ready(Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no {}", file.name))))
    }
}

/// The service that hands out tokens, and the listener where they are shown.
///
/// At most 1024 tokens wait, each 30 s and for one connection; at most 1024 connections are open at once.
pub struct FileTransfer<F> {
    files: Arc<F>,
    side: Side<(File, bool)>,
}

impl<F: Files> FileTransfer<F> {
    /// Listens for files at `HOST:PORT`, beside the server that this service is [added](crate::Server::add) to. Port 0
    /// chooses one.
    ///
    /// # Errors
    /// An address that cannot be listened on.
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

    /// Tells clients to connect to `HOST:PORT` instead of where this listens.
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
        let Asked { file_name: name, file_size, meta } = decode(codec, bytes)?;
        let size = u64::try_from(file_size)
            .map_err(|_| Status::invalid_argument(format!("{name} has {file_size} bytes")))?;
        let file = File { name, size, meta: meta.unwrap_or_default() };
        self.files.check(&file, is_upload, &cx)?;
        Ok(Reply::one(self.side.ticket((file, is_upload))?.encode(codec)?, cx))
    }
}

/// Asks the server to take a file of `file.size` bytes, which are to be written into the pipe. Nobody says when, and
/// whether, the server has it.
///
/// # Errors
/// Those of the call; `Unavailable` when the second connection cannot be made.
pub async fn upload(channel: &Channel, file: &File) -> Result<Pipe> {
    Ticket::of(channel, &UPLOAD, &file.asked()?).await
}

/// Asks the server for a file, which ends with the pipe. A server that fails in the middle ends it early, and nobody
/// says so.
///
/// # Errors
/// As [`upload`].
pub async fn download(channel: &Channel, file: &File) -> Result<Pipe> {
    Ticket::of(channel, &DOWNLOAD, &file.asked()?).await
}

impl File {
    fn asked(&self) -> Result<Asked> {
        let text = |_| Status::invalid_argument(format!("{} of {} bytes is too large", self.name, self.size));
        let file_size = i64::try_from(self.size).map_err(text)?;
        Ok(Asked { file_name: self.name.clone(), file_size, meta: Some(self.meta.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Running, Server};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::mpsc,
    };

    /// Tells of what was sent, and answers with what is asked for.
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
        let (told, tell) = mpsc::unbounded_channel();
        let files = FileTransfer::listen("127.0.0.1:0", Store(told)).await.unwrap();
        let running = Server::new().add(files).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&format!("{}?wire=rpcx", running.url())).await.unwrap();
        (running, channel, tell)
    }

    #[tokio::test]
    async fn files_go_both_ways() {
        let (_running, channel, mut sent) = start().await;
        let file = File::new("a.txt").size(1_000_000).meta("mode", "0644");
        let content = vec![7; 1_000_000];
        let mut pipe = upload(&channel, &file).await.unwrap();
        pipe.write_all(&content).await.unwrap();
        let (told, read) = sent.recv().await.unwrap();
        assert_eq!(told, file);
        assert!(read.unwrap() == content);

        let file = File::new("b.txt").meta("lines", "3");
        let mut content = String::new();
        download(&channel, &file).await.unwrap().read_to_string(&mut content).await.unwrap();
        assert_eq!(content, "b.txt\nb.txt\nb.txt\n");
    }

    #[tokio::test]
    async fn a_file_has_the_size_that_was_announced() {
        let (_running, channel, mut sent) = start().await;
        for (announced, written, read) in
            [(3, 5, Ok(3)), (5, 3, Err(io::ErrorKind::UnexpectedEof)), (0, 0, Ok(0))]
        {
            let mut pipe = upload(&channel, &File::new("x").size(announced)).await.unwrap();
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
    async fn what_is_not_served_ends_at_once() {
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
    }
}
