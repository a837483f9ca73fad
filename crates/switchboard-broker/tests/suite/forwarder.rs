//! A path between clients and a server that a test can stall or cut.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinHandle,
};

/// Directions in which bytes pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Path {
    /// Open connections end, and new ones are closed.
    Cut,
    Open,
    /// Nothing passes in either direction; connections stay open.
    Stalled,
    /// Nothing reaches the clients.
    StalledToClients,
    /// Nothing reaches the server.
    StalledToServer,
}

/// Where the server is.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Tcp(u16),
    Unix(PathBuf),
}

/// A forwarder on a port of its own, which outlives restarts of the server.
pub(crate) struct Forwarder {
    pub(crate) port: u16,
    path: watch::Sender<Path>,
    target: Arc<Mutex<Target>>,
    accepting: JoinHandle<()>,
}

impl Forwarder {
    pub(crate) async fn start(target: Target) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (path, paths) = watch::channel(Path::Open);
        let target = Arc::new(Mutex::new(target));
        let accepting = tokio::spawn(accept(listener, target.clone(), paths));
        Forwarder { port, path, target, accepting }
    }

    pub(crate) fn set(&self, path: Path) {
        self.path.send_replace(path);
    }

    pub(crate) fn retarget(&self, target: Target) {
        *self.target.lock().unwrap() = target;
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<Target>>, path: watch::Receiver<Path>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if *path.borrow() == Path::Cut {
            continue;
        }
        let (target, path) = (target.lock().unwrap().clone(), path.clone());
        tokio::spawn(async move {
            match target {
                Target::Tcp(port) => {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    connect(client, server.into_split(), path).await;
                }
                Target::Unix(file) => {
                    let Ok(server) = UnixStream::connect(file).await else { return };
                    connect(client, server.into_split(), path).await;
                }
            }
        });
    }
}

async fn connect<R, W>(client: TcpStream, (from_server, to_server): (R, W), mut path: watch::Receiver<Path>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (from_client, to_client) = client.into_split();
    let up = copy(from_client, to_server, path.clone(), |path| {
        matches!(path, Path::Stalled | Path::StalledToServer)
    });
    let down = copy(from_server, to_client, path.clone(), |path| {
        matches!(path, Path::Stalled | Path::StalledToClients)
    });
    // Either side may end the connection.
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = path.wait_for(|path| *path == Path::Cut) => {}
    }
}

async fn copy<R, W>(mut from: R, mut to: W, mut path: watch::Receiver<Path>, is_stalled: fn(&Path) -> bool)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut bytes = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if path.wait_for(|path| !is_stalled(path)).await.is_err() {
            return;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
