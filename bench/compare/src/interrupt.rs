//! Ctrl-C in a long run: the measurements are written, and the run can be resumed later.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// Set when the user has interrupted this run.
#[derive(Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles Ctrl-C; a second one ends the process at once, with exit code 130 as in shells.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn watch() -> Result<Self, String> {
        let failed = |error| format!("cannot watch for Ctrl-C: {error}");
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let entered = runtime.enter();
        let mut interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
        drop(entered);
        let requested = Arc::new(AtomicBool::new(false));
        let request = requested.clone();
        thread::spawn(move || {
            runtime.block_on(async {
                interrupts.recv().await;
                request.store(true, Ordering::Relaxed);
                eprintln!("\ninterrupted: this measurement ends first; once more ends at once");
                interrupts.recv().await;
                process::exit(130);
            });
        });
        Ok(Self(requested))
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
