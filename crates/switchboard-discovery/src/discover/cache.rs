//! Cache of the last snapshot of a service on disk.

use super::{Instance, Options, Snapshot, escape};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    fs,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// One cache file. Read and write errors are logged and otherwise ignored.
pub(super) struct Cache {
    file: PathBuf,
    service: String,
    bytes_max: u64,
}

/// Content of the file, as JSON.
#[derive(Deserialize, Serialize)]
struct Content<'a> {
    /// Long names that begin alike share a file; the service that does not match ignores its content.
    service: Cow<'a, str>,
    instances: Cow<'a, [Instance]>,
}

/// Length limit of file names; most file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 200;

impl Cache {
    pub(super) fn new(folder: &Path, service: &str, options: &Options) -> Cache {
        let mut name = escape(service);
        name.truncate(NAME_BYTES_MAX);
        let bytes_max = options.instances_max.saturating_mul(options.instance_bytes_max).saturating_add(1024);
        Cache { file: folder.join(name + ".json"), service: service.to_owned(), bytes_max: bytes_max as u64 }
    }

    /// Returns the snapshot written last, if it exists and is valid.
    pub(super) async fn read(&self) -> Option<Snapshot> {
        let (file, bytes_max, service) = (self.file.clone(), self.bytes_max, self.service.clone());
        let read = move || -> io::Result<Option<Snapshot>> {
            let opened = match fs::File::open(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
            let mut bytes = Vec::new();
            opened.take(bytes_max).read_to_end(&mut bytes)?;
            let content: Content<'_> = serde_json::from_slice(&bytes)?;
            let usable = |instance: &Instance| instance.service == service && instance.check().is_ok();
            let instances = content.instances.into_owned().into_iter().filter(usable);
            Ok((content.service == service).then(|| Snapshot::new(instances)))
        };
        let read = tokio::task::spawn_blocking(read).await;
        self.log_error("read", read.unwrap_or_else(|error| Err(io::Error::other(error)))).flatten()
    }

    /// Replaces the file atomically: a reader sees the old or the new content, also after a crash.
    pub(super) async fn write(&self, snapshot: Arc<Snapshot>) {
        let (file, service) = (self.file.clone(), self.service.clone());
        let write = move || -> io::Result<()> {
            let content =
                Content { service: service.into(), instances: snapshot.instances.as_slice().into() };
            let bytes = serde_json::to_vec(&content)?;
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder)?;
            }
            // Processes that share the folder write at the same time.
            let unique = RandomState::new().hash_one(std::process::id());
            let new = file.with_extension(format!("{unique:016x}.new"));
            let mut opened = fs::File::create_new(&new)?;
            let written = opened.write_all(&bytes).and_then(|()| opened.sync_all());
            let written = written.and_then(|()| fs::rename(&new, &file));
            written.inspect_err(|_| drop(fs::remove_file(&new)))
        };
        let written = tokio::task::spawn_blocking(write).await;
        self.log_error("write", written.unwrap_or_else(|error| Err(io::Error::other(error))));
    }

    fn log_error<T>(&self, what: &str, outcome: io::Result<T>) -> Option<T> {
        let log = |error: &io::Error| {
            let (file, service) = (self.file.display(), &self.service);
            tracing::warn!(%file, service, %error, "cannot {what} the cache of discovered instances");
        };
        outcome.inspect_err(log).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("switchboard-cache-{}-{name}", std::process::id()))
    }

    #[tokio::test]
    async fn written_snapshots_are_read_and_invalid_files_are_ignored() {
        let folder = folder("roundtrip");
        let cache = Cache::new(&folder, "a/b", &Options::new());
        assert_eq!(cache.read().await, None);
        let snapshot = Arc::new(Snapshot::new([Instance::new("a/b", "tcp://h:1").tag("x", "y")]));
        cache.write(snapshot.clone()).await;
        assert_eq!(cache.read().await.as_ref(), Some(&*snapshot));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file remains");
        fs::write(&cache.file, b"{\"service\":\"a/b\",\"inst").unwrap();
        assert_eq!(cache.read().await, None);
        fs::write(&cache.file, b"{\"service\":\"other\",\"instances\":[]}").unwrap();
        assert_eq!(cache.read().await, None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_created_is_ignored() {
        let folder = folder("file");
        fs::write(&folder, b"a file").unwrap();
        let cache = Cache::new(&folder, "a", &Options::new());
        cache.write(Arc::default()).await;
        assert_eq!(cache.read().await, None);
        fs::remove_file(&folder).unwrap();
    }
}
