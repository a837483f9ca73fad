//! Files and streams on a second connection, on both sides.

use std::{collections::BTreeMap, io, time::Duration};
use switchboard::{
    Channel, Cx, Result, Status,
    rpcx::{self, File, Files, Meta, Pipe, Streams},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

/// For all of a case.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stores uploaded files; a download waits until its file is there.
#[derive(Default)]
pub(crate) struct Store(watch::Sender<BTreeMap<String, Vec<u8>>>);

impl Files for Store {
    async fn upload(&self, file: File, mut pipe: Pipe) -> io::Result<()> {
        let mut content = Vec::new();
        pipe.read_to_end(&mut content).await?;
        if file.meta.get("kind").is_some_and(|kind| kind == "text") {
            self.0.send_modify(|files| drop(files.insert(file.name, content)));
        }
        Ok(())
    }

    async fn download(&self, file: File, mut pipe: Pipe) -> io::Result<()> {
        let mut files = self.0.subscribe();
        let files = files.wait_for(|files| files.contains_key(&file.name)).await;
        let content = files.map(|files| files[&file.name].clone()).map_err(io::Error::other)?;
        pipe.write_all(&content).await
    }
}

/// Says what it hears.
pub(crate) struct Speaker;

impl Streams for Speaker {
    fn check(&self, meta: &Meta, _: &Cx) -> Result<()> {
        if meta.contains_key("who") { Ok(()) } else { Err(Status::permission_denied("who is it?")) }
    }

    async fn stream(&self, meta: Meta, mut pipe: Pipe) -> io::Result<()> {
        let mut ping = [0; 4];
        pipe.read_exact(&mut ping).await?;
        pipe.write_all(format!("{}: {}", meta["who"], String::from_utf8_lossy(&ping)).as_bytes()).await
    }
}

/// Sends files and fetches them.
///
/// # Errors
/// Describes the first failure.
pub(crate) async fn files(url: &str) -> Result<(), String> {
    let channel = Channel::connect(url).await.map_err(|error| error.to_string())?;
    for lines in [0, 1, 100_000] {
        let content = "line\n".repeat(lines);
        // Its own for each case, as servers keep them.
        let name = format!("{}-{lines}-{}", url.len(), std::process::id());
        let file = File::new(&name).size(content.len() as u64).meta("kind", "text");
        let mut pipe = rpcx::upload(&channel, &file).await.map_err(|error| error.to_string())?;
        pipe.write_all(content.as_bytes()).await.map_err(|error| error.to_string())?;
        drop(pipe);
        let mut pipe = rpcx::download(&channel, &File::new(name)).await.map_err(|error| error.to_string())?;
        let mut fetched = String::new();
        within(pipe.read_to_string(&mut fetched)).await?;
        if fetched != content {
            return Err(format!("{} bytes were sent, and {} came back", content.len(), fetched.len()));
        }
    }
    Ok(())
}

/// Speaks with a server over a connection of its own.
///
/// # Errors
/// Describes the first failure.
pub(crate) async fn streams(url: &str) -> Result<(), String> {
    let channel = Channel::connect(url).await.map_err(|error| error.to_string())?;
    let meta = Meta::from([("who".to_owned(), "rust".to_owned())]);
    let mut pipe = rpcx::stream(&channel, &meta).await.map_err(|error| error.to_string())?;
    pipe.write_all(b"ping").await.map_err(|error| error.to_string())?;
    let mut said = String::new();
    within(pipe.read_to_string(&mut said)).await?;
    match (said.as_str(), rpcx::stream(&channel, &Meta::new()).await) {
        ("rust: ping", Err(_)) => Ok(()),
        (said, refused) => Err(format!("{said:?} was said; without a name: {refused:?}")),
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, work)
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}
