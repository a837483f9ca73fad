//! The tour without a person: kills a server and the registry, and checks that no caller noticed.

use super::{
    Callers, Cluster, SERVERS,
    dashboard::{Seen, line},
};
use std::time::{Duration, Instant};
use switchboard::{Result, Status};

/// Whatever takes longer does not come.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Answers that show that traffic flows.
const ENOUGH: u64 = 200;
/// The server that is killed.
const VICTIM: usize = 1;

pub(crate) async fn run(mut cluster: Cluster, callers: &Callers) -> Result<()> {
    let name = SERVERS[VICTIM];
    let mut tour = Tour { last: Seen::now(callers), callers };
    tour.until(&mut cluster, "all servers get calls", |_, new| new.iter().all(|new| *new >= ENOUGH)).await?;

    cluster.servers[VICTIM].kill();
    tour.until(&mut cluster, "callers see that one is dead", |cluster, _| cluster.state(VICTIM) != "up")
        .await?;
    tour.until(&mut cluster, &format!("the others serve while {name} is dead"), |_, new| {
        new.iter().sum::<u64>() >= 3 * ENOUGH
    })
    .await?;

    cluster.servers[VICTIM].revive()?;
    tour.until(&mut cluster, &format!("{name} is back and gets calls"), |_, new| new[VICTIM] >= ENOUGH)
        .await?;

    cluster.registry.kill();
    tour.until(&mut cluster, "a dead registry changes nothing", |_, new| {
        new.iter().all(|new| *new >= ENOUGH)
    })
    .await?;
    cluster.stop();
    println!("{} calls, none failed", callers.answers().iter().sum::<u64>());
    Ok(())
}

struct Tour<'a> {
    callers: &'a Callers,
    last: Seen,
}

impl Tour<'_> {
    /// Waits until it is so, given the new answers of each server, and shows the line of that time.
    async fn until(
        &mut self,
        cluster: &mut Cluster,
        what: &str,
        is_so: impl Fn(&Cluster, &[u64; SERVERS.len()]) -> bool,
    ) -> Result<()> {
        let (began, before) = (Instant::now(), self.callers.answers());
        loop {
            let mut new = self.callers.answers();
            new.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
            if is_so(cluster, &new) {
                break;
            }
            if began.elapsed() > GIVE_UP {
                return Err(Status::deadline_exceeded(format!("{what}: not within {GIVE_UP:?}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let now = Seen::now(self.callers);
        println!("{}\n    {what}", line(cluster, self.callers, &self.last, &now));
        self.last = now;
        match self.callers.last_failure() {
            Some(failure) => Err(Status::internal(format!("{what}, but a call failed: {failure}"))),
            None => Ok(()),
        }
    }
}
