//! How the threads of a rival share the work.

use std::str::FromStr;
use tokio::runtime::Builder;

/// The runtimes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A current-thread runtime on each thread; a connection stays where it began.
    PerCore,
    /// One multi-thread runtime, as `#[tokio::main]` starts it: tasks move between its threads.
    Shared,
}

impl Runtime {
    /// Starts one.
    pub(crate) fn start(self, threads: usize) -> Result<tokio::runtime::Runtime, String> {
        let runtime = match self {
            Self::PerCore => Builder::new_current_thread().enable_all().build(),
            Self::Shared => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
        };
        runtime.map_err(|error| format!("a runtime could not start: {error}"))
    }

    /// How many of them there are for so many threads.
    pub(crate) fn count(self, threads: usize) -> usize {
        match self {
            Self::PerCore => threads,
            Self::Shared => 1,
        }
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "per-core" => Ok(Self::PerCore),
            "shared" => Ok(Self::Shared),
            other => Err(format!("no runtime {other}: per-core and shared are known")),
        }
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
