//! Serves, or makes a given number of calls, and prints the number of allocations.
//!
//! ```text
//! gates serve WORKLOAD                   a server on a free port, which ends with its standard input
//! gates call WORKLOAD CALLS ADDRESS      callers in a closed loop on one connection
//! gates call WORKLOAD CALLS              a workload inside the process
//! ```
//!
//! `cargo xtask test --only gates` runs both under valgrind, which counts instructions and system calls, with two
//! numbers of calls; it divides the difference of the counts by that of the calls, so that what starting, connecting
//! and warming up costs falls out, and holds it against `bounds.txt`. With one thread and one connection on either
//! side, and without polling, all that is outstanding goes to and fro at once: counts hardly vary, on any machine.

mod counting;
#[cfg(feature = "messaging")]
mod messaging;
mod services;
mod workload;

use counting::Counting;
use std::{
    io::{Read, Write},
    process::ExitCode,
    thread,
    time::Duration,
};
use switchboard::Runtime;
use workload::Workload;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Leaves with 0 when every call was answered as it should be, 1 when one was not, 2 when the command line is not
/// understood.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["serve", workload] => serve(workload),
        ["call", workload, calls, address] => call(workload, calls, address),
        ["call", workload, calls] => call(workload, calls, ""),
        _ => {
            eprintln!("usage: gates serve WORKLOAD | gates call WORKLOAD CALLS [ADDRESS]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => {
            println!("allocations {}", counting::allocations());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gates: {error}");
            ExitCode::FAILURE
        }
    }
}

fn call(workload: &str, calls: &str, address: &str) -> Result<(), String> {
    let workload = Workload::named(workload)?;
    let calls = calls.parse::<u64>().map_err(|error| format!("{calls} calls: {error}"))?;
    let address = address.to_owned();
    runtime().run(async move { workload.make(calls, &address).await })
}

fn serve(workload: &str) -> Result<(), String> {
    let workload = Workload::named(workload)?;
    runtime().run(async {
        let running = workload.serve().await?;
        println!("listening on {}", running.url().trim_start_matches("tcp://"));
        std::io::stdout().flush().map_err(|error| error.to_string())?;
        let (end, ended) = tokio::sync::oneshot::channel();
        thread::spawn(move || {
            // However it ends.
            let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
            let _ = end.send(());
        });
        // The thread sends before it ends.
        let _ = ended.await;
        Ok(())
    })
}

/// One worker that never polls on: how often it would is a matter of the clock.
fn runtime() -> Runtime {
    Runtime::new().workers(1).spin(Duration::ZERO)
}
