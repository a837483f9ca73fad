//! The command line of `switchboard bench overload`, and that of its server.

use crate::bench::{
    options::{ServerArgs, seconds},
    wire::Wire,
};
use clap::{Args, ValueEnum, value_parser};
use std::{path::PathBuf, time::Duration};

/// `switchboard bench overload`.
#[derive(Debug, Args)]
pub(in crate::bench) struct OverloadArgs {
    #[command(flatten)]
    pub(super) backend: BackendArgs,
    /// Load, in multiples of the server's capacity; a list measures each.
    #[arg(long, default_value = "0.5,1,2,3,5,10", value_delimiter = ',', value_parser = multiple)]
    pub(super) loads: Vec<f64>,
    /// Concurrency limits of the server; a list measures each.
    #[arg(long, default_value = "off,auto", value_delimiter = ',', value_enum)]
    pub(super) limits: Vec<Limiter>,
    /// Milliseconds that callers wait for a reply.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=60_000))]
    deadline_ms: u64,
    /// Omit the measurement of a greedy tenant's effect on another one.
    #[arg(long)]
    pub(super) no_tenants: bool,
    /// Seconds of each measurement, after as many of warm-up, in which limits adapt.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Wire of the calls.
    #[arg(long, value_enum, default_value_t = Wire::NATIVE)]
    pub(super) wire: Wire,
    /// Write results as JSON; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a self-contained page with plots.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// The backend that the server's handlers wait for; it determines the capacity.
#[derive(Clone, Debug, Args)]
pub(super) struct BackendArgs {
    /// Calls that are processed at the same time.
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(super) units: u32,
    /// Microseconds that one call takes.
    #[arg(long, default_value_t = 5000, value_parser = value_parser!(u64).range(100..=10_000_000))]
    work_us: u64,
}

/// Arguments of the server.
#[derive(Debug, Args)]
pub(crate) struct OverloadServerArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    #[command(flatten)]
    pub(super) backend: BackendArgs,
    #[arg(long, value_enum, default_value_t = Limiter::Off)]
    pub(super) limit: Limiter,
    /// Calls over the limit wait for this many milliseconds, tenants in turn.
    #[arg(long)]
    pub(super) fair_ms: Option<u64>,
}

/// A concurrency limit of the whole server.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Limiter {
    Auto,
    Gradient,
    Off,
}

impl Limiter {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Gradient => "gradient",
            Self::Off => "off",
        }
    }
}

impl OverloadArgs {
    pub(super) fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl BackendArgs {
    pub(super) fn work(&self) -> Duration {
        Duration::from_micros(self.work_us)
    }

    /// Calls a second.
    pub(super) fn capacity(&self) -> f64 {
        f64::from(self.units) / self.work().as_secs_f64()
    }

    /// Returns the arguments for the command line of the server.
    pub(super) fn words(&self) -> [String; 4] {
        ["--units".into(), self.units.to_string(), "--work-us".into(), self.work_us.to_string()]
    }
}

fn multiple(text: &str) -> Result<f64, String> {
    let load: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=100.0).contains(&load) { Ok(load) } else { Err(format!("{load} is not in 0.01..=100")) }
}
