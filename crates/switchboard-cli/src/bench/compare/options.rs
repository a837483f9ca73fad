//! The command line of `switchboard bench compare`.

use super::{cell::Preset, subject::Found};
use clap::{Args, value_parser};
use std::{
    env,
    path::{Path, PathBuf},
};

/// `switchboard bench compare`.
#[derive(Debug, Args)]
pub(in crate::bench) struct CompareArgs {
    /// What to compare; a list takes each [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PRESET")]
    pub(super) preset: Vec<Preset>,
    /// Compare with these alone, by the names of the report: a list such as `tonic,grpc-go,floor` [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(super) rivals: Vec<String>,
    /// Seconds of each measurement after a warm-up [default: up to 3, so that all is done in 50 minutes]
    #[arg(long, value_parser = crate::bench::options::seconds)]
    pub(super) seconds: Option<f64>,
    /// How often each is measured, in an order that changes; medians are quoted [default: 3]
    #[arg(long, value_parser = value_parser!(u32).range(1..=100))]
    pub(super) rounds: Option<u32>,
    /// Where every measurement is kept; a run that was interrupted goes on from there.
    #[arg(long, value_name = "FILE", default_value = "bench-compare.json")]
    pub(super) json: PathBuf,
    /// Go on with the run in FILE, or draw its report again if it is complete.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(super) resume: Option<PathBuf>,
    /// Measure again what failed in the run that is gone on with, as after a rival was mended.
    #[arg(long)]
    pub(super) retry_failed: bool,
    /// Write the report as a page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// The folder of the rivals [default: bench/peers of this checkout]
    #[arg(long, value_name = "DIR")]
    pub(super) peers: Option<PathBuf>,
}

impl CompareArgs {
    /// The file of the measurements.
    pub(super) fn file(&self) -> &Path {
        self.resume.as_deref().unwrap_or(&self.json)
    }

    /// Everything that can be compared here.
    ///
    /// # Errors
    /// When the folder of the rivals is not there.
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

/// The folder that this is run in, or the nearest above it, that has rivals.
fn checkout() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().find(|folder| folder.join("bench/peers").is_dir()).map(Path::to_path_buf)
}

/// Where `cargo xtask peers` puts what it builds of `peers`.
fn built(peers: &Path) -> PathBuf {
    let folder = env::var_os("SWITCHBOARD_PEERS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // Programs are started by their whole path.
    let peers = std::path::absolute(peers).unwrap_or_else(|_| peers.to_path_buf());
    let folder = folder.unwrap_or_else(|| peers.ancestors().nth(2).unwrap_or(&peers).join(".peers"));
    std::path::absolute(&folder).unwrap_or(folder).join("bench")
}
