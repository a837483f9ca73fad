//! The server's memory over a run: after its first replies, when all its allocations have been made once, and at the
//! end. It must not grow with the length of the run.

use super::process::Server;
use std::{
    path::{Path, PathBuf},
    sync::{OnceLock, atomic::AtomicU64, atomic::Ordering},
};

/// Replies of one worker after which the server has executed every step once.
pub(super) const FIRST: u64 = 10;

/// Records the memory of a server; shared by the workers of one measurement.
#[derive(Debug)]
pub struct Watch {
    rollup: PathBuf,
    after_first: OnceLock<Option<u64>>,
    end: AtomicU64,
}

impl Watch {
    pub(super) fn new(server: &Server) -> Self {
        Self { rollup: server.rollup(), after_first: OnceLock::new(), end: AtomicU64::new(0) }
    }

    /// Reports that a worker has its [`FIRST`] replies; the first report is recorded.
    pub(super) fn first(&self) {
        self.after_first.get_or_init(|| resident_bytes(&self.rollup).ok());
    }

    /// Reports that a worker has all its replies and still holds its connections; the last report is recorded.
    pub(super) fn end(&self) {
        if let Ok(bytes) = resident_bytes(&self.rollup) {
            self.end.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the resident bytes after the first replies and at the end, if both were recorded.
    pub(super) fn noted(&self) -> Option<(u64, u64)> {
        let end = Some(self.end.load(Ordering::Relaxed)).filter(|&end| end > 0);
        self.after_first.get().copied().flatten().zip(end)
    }
}

/// Returns the resident memory of the process whose file `rollup` is.
///
/// # Errors
/// When `/proc` cannot be read, as when the process has ended.
pub(super) fn resident_bytes(rollup: &Path) -> Result<u64, String> {
    let path = rollup.display();
    let text = std::fs::read_to_string(rollup).map_err(|error| format!("cannot read {path}: {error}"))?;
    resident(&text).ok_or_else(|| format!("{path} has no line for the resident memory"))
}

fn resident(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_roll_up() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                2048 kB\nPss:  1 kB\n";
        assert_eq!(resident(text), Some(2048 * 1024));
        assert_eq!(resident("Pss: 1 kB\n"), None);
    }
}
