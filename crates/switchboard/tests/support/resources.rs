//! Limits of the system for this process, and their use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many of `wanted` peers can be had with the open files that there may be, two for each; their limit is raised as
/// far as it can be.
pub fn peers(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Refused where a policy of the system says so; then it stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let peers = wanted.min((files.saturating_sub(400) / 2) as usize);
    assert!(peers >= 100, "the limit of open files is too low to test anything");
    peers
}

/// Memory of this process that is in use, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it can be read");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("there is such a line");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.expect("it is a number") << 10
}
