//! A progress bar on standard error while a measurement runs, if a terminal shows it.

use super::{
    engine::{Shape, Until},
    options::{Call, Run},
};
use crate::terminal::Terminal;
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Shows one measurement until dropped.
pub(super) struct Progress {
    /// Approximate number of calls made.
    pub(super) done: Arc<AtomicU64>,
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows the progress of `run`, called `title`, from now on.
    pub(super) fn start(title: String, run: &Run) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        let shown = io::stderr().is_terminal().then(|| {
            let (stop, stopped) = mpsc::channel();
            let (counted, call, shape, start) = (done.clone(), run.call, run.shape, Instant::now());
            let shower = thread::spawn(move || {
                while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                    let share = share(call, shape, start.elapsed(), counted.load(Ordering::Relaxed));
                    let line = bar(&title, share);
                    // A line that the terminal breaks would not be written over.
                    eprint!("\r\x1b[2K{}", Terminal::stderr().clip(&line));
                    let _ = io::stderr().flush();
                }
                eprint!("\r\x1b[2K");
            });
            (stop, shower)
        });
        Self { done, shown }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, shower)) = self.shown.take() {
            drop(stop);
            let _ = shower.join();
        }
    }
}

/// Returns the completed share of a measurement, from 0 to 1.
fn share(call: Call, shape: Shape, elapsed: Duration, done: u64) -> f64 {
    let share = match (call, shape.until) {
        (Call::Idle(_), _) => done as f64 / shape.connections() as f64,
        (_, Until::Calls(calls)) => done as f64 / calls as f64,
        (_, Until::Elapsed(time)) => elapsed.as_secs_f64() / (time + shape.warm_up).as_secs_f64(),
    };
    share.clamp(0.0, 1.0)
}

const WIDTH: usize = 24;

fn bar(title: &str, share: f64) -> String {
    let full = (share * WIDTH as f64) as usize;
    format!("[{}{}] {:3.0} %  {title}", "#".repeat(full), ".".repeat(WIDTH - full), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar("x", 0.0), "[........................]   0 %  x");
        assert_eq!(bar("x", 0.5), "[############............]  50 %  x");
        assert_eq!(bar("x", 1.0), "[########################] 100 %  x");
    }
}
