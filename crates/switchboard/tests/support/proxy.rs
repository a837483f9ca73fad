//! A link between callers and a server that can be cut or frozen.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use switchboard::Running;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A link to `target` that can be cut or frozen.
pub struct Proxy {
    pub address: SocketAddr,
    links: Arc<std::sync::Mutex<Vec<tokio::task::AbortHandle>>>,
    /// Nothing goes on while it is set.
    pub frozen: Arc<AtomicBool>,
    pub accepted: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(target: &Running) -> Proxy {
        let target = target.url().replace("tcp://", "");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let links = Arc::<std::sync::Mutex<Vec<_>>>::default();
        let (frozen, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let acceptor = {
            let (links, frozen, accepted) = (links.clone(), frozen.clone(), accepted.clone());
            tokio::spawn(async move {
                loop {
                    let (near, _) = listener.accept().await.unwrap();
                    accepted.fetch_add(1, Ordering::SeqCst);
                    let far = TcpStream::connect(&target).await.unwrap();
                    let link = tokio::spawn(forward(near, far, frozen.clone()));
                    links.lock().unwrap().push(link.abort_handle());
                }
            })
        };
        Proxy { address, links, frozen, accepted, acceptor }
    }

    pub fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    pub fn cut(&self) {
        for link in self.links.lock().unwrap().drain(..) {
            link.abort();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.cut();
    }
}

async fn forward(near: TcpStream, far: TcpStream, frozen: Arc<AtomicBool>) {
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let one = |frozen: Arc<AtomicBool>| {
        async move |from: &mut tokio::net::tcp::OwnedReadHalf, to: &mut tokio::net::tcp::OwnedWriteHalf| {
            let mut buffer = vec![0; 16 << 10];
            loop {
                let read = from.read(&mut buffer).await.unwrap_or(0);
                if read == 0 {
                    return;
                }
                if frozen.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    };
    let (up, down) = (one(frozen.clone()), one(frozen));
    tokio::select! {
        () = up(&mut near_in, &mut far_out) => {}
        () = down(&mut far_in, &mut near_out) => {}
    }
}
