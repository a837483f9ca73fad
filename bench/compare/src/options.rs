//! The command line of `bench-compare`.

use super::{cell::Preset, subject::Found};
use clap::{Args, value_parser};
use std::{
    env,
    path::{Path, PathBuf},
};

/// Subjects, duration and result files of a comparison.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Presets to compare, as a list [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PRESET")]
    pub(super) preset: Vec<Preset>,
    /// Compare only with these, by the names of the report: a list such as `tonic,grpc-go,floor` [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(super) rivals: Vec<String>,
    /// Seconds of each measurement after a warm-up [default: up to 3, so that the run takes 50 minutes]
    #[arg(long, value_parser = switchboard_cli::bench::options::seconds)]
    pub(super) seconds: Option<f64>,
    /// Number of measurements of each, in an order that changes; medians are reported [default: 3]
    #[arg(long, value_parser = value_parser!(u32).range(1..=100))]
    pub(super) rounds: Option<u32>,
    /// File of every measurement; an interrupted run is resumed from there.
    #[arg(long, value_name = "FILE", default_value = "bench-compare.json")]
    pub(super) json: PathBuf,
    /// Resume the run in FILE, or write its report again if it is complete.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(super) resume: Option<PathBuf>,
    /// Repeat failed measurements of the resumed run, as after a rival was fixed.
    #[arg(long)]
    pub(super) retry_failed: bool,
    /// Write the report as a self-contained page.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// The folder of the rivals [default: bench/peers of this checkout]
    #[arg(long, value_name = "DIR")]
    pub(super) peers: Option<PathBuf>,
}

impl CompareArgs {
    /// Returns the file of the measurements.
    pub(super) fn file(&self) -> &Path {
        self.resume.as_deref().unwrap_or(&self.json)
    }

    /// Returns all subjects that can be compared here.
    ///
    /// # Errors
    /// When the folder of the rivals does not exist.
    pub(super) fn found(&self) -> Result<Found, String> {
        let peers = match &self.peers {
            Some(peers) if !peers.is_dir() => {
                return Err(format!("--peers {}: no such folder", peers.display()));
            }
            Some(peers) => peers.clone(),
            None => checkout().unwrap_or_default().join("bench/peers"),
        };
        Found::look(&peers, &built(&peers))
    }
}

/// Returns the working folder, or its nearest parent, that has rivals.
fn checkout() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().find(|folder| folder.join("bench/peers").is_dir()).map(Path::to_path_buf)
}

/// Returns the folder of `cargo xtask peers` for the build products of `peers`.
fn built(peers: &Path) -> PathBuf {
    let folder = env::var_os("SWITCHBOARD_PEERS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // Programs are started by their absolute path.
    let peers = std::path::absolute(peers).unwrap_or_else(|_| peers.to_path_buf());
    let folder = folder.unwrap_or_else(|| peers.ancestors().nth(2).unwrap_or(&peers).join(".peers"));
    std::path::absolute(&folder).unwrap_or(folder).join("bench")
}
