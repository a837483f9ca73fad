//! Ctrl-C in a long run: what was measured is written, and the run can go on later.

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

/// Whether somebody wants this run to end.
#[derive(Debug)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes Ctrl-C over from the system; a second one ends the process at once, with exit code 130 as shells know it.
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
