//! The `switchboard` binary.

use std::process::ExitCode;

/// Both ends of a call allocate its payload, and mimalloc does that faster than the system allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    switchboard_cli::run()
}
