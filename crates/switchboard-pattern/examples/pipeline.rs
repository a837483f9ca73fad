//! Measures an acknowledged pipeline against the same topics without acknowledgements, each over the native wire with a
//! server, a sender and a receiver in processes of their own:
//!
//! ```console
//! cargo run --release -p switchboard-pattern --example pipeline -- compare 64 1000000
//! ```
//!
//! The arguments are the bytes of a task and the number of tasks, 64 and 20,000 without arguments. `compare` starts
//! this program again as `serve`, `push`, `acked` and `plain`, five rounds of each, and prints the medians in tasks per
//! second.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use switchboard::Server;
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, Delivery};
use switchboard_pattern::pipeline::Pipeline;

type Error = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;
/// Tasks of a publication.
const BATCH: usize = 256;
const BACKLOG: usize = 65_536;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments[..] {
        [] => compare("64", "20000"),
        ["compare", bytes, tasks] => compare(bytes, tasks),
        ["serve"] => runtime.block_on(serve()),
        ["push", url, topic, bytes, tasks] => {
            runtime.block_on(push(url, topic, bytes.parse()?, tasks.parse()?))
        }
        ["acked", url, tasks] => runtime.block_on(acked(url, tasks.parse()?)),
        ["plain", url, tasks] => runtime.block_on(plain(url, tasks.parse()?)),
        _ => Err("usage: pipeline compare BYTES TASKS".into()),
    }
}

/// A process that ends with this value.
struct Process(Child);

impl Process {
    /// Starts this program; returns its first line.
    fn start(arguments: &[&str]) -> Result<(Process, String), Error> {
        let mut child =
            Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("the process has no output")?;
        let process = Process(child);
        let line = BufReader::new(output).lines().next().ok_or("the process has ended")??;
        Ok((process, line))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or ends now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compare(bytes: &str, tasks: &str) -> Result<(), Error> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (index, kind) in ["plain", "acked"].into_iter().enumerate() {
            let (_server, url) = Process::start(&["serve"])?;
            let sender = std::thread::spawn({
                let arguments = ["push", &url, kind, bytes, tasks].map(str::to_owned);
                move || {
                    // The receiver has subscribed first: its cursor exists at the server.
                    Command::new(std::env::current_exe()?).args(arguments).status()
                }
            });
            let (_receiver, rate) = Process::start(&[kind, &url, tasks])?;
            sender.join().map_err(|_| "the sender has failed")??;
            println!("{kind}: {rate} tasks/s");
            rates[index].push(rate.parse::<f64>()?);
        }
    }
    for list in &mut rates {
        list.sort_by(f64::total_cmp);
    }
    let [plain, acked] = rates.map(|list| list[ROUNDS / 2]);
    println!("medians: plain {plain:.0}/s, acked {acked:.0}/s, ratio {:.2}", acked / plain);
    Ok(())
}

async fn serve() -> Result<(), Error> {
    let options = Pipeline::topic_options(BACKLOG, Duration::from_secs(60));
    let mut limits = switchboard_message::Limits::default();
    limits.unacknowledged_max = 4096;
    let bus = Bus::builder().limits(limits).topics(">", options)?.build();
    let _acked = Pipeline::new(&bus, "acked").hold().await?;
    let _plain = bus.subscribe_encoded("plain").group("workers").await?;
    let server = Server::new().add(BusServer::new(bus)).listen("tcp://127.0.0.1:0").start().await?;
    println!("{}", server.url());
    std::future::pending::<()>().await;
    Ok(())
}

async fn push(url: &str, topic: &str, bytes: usize, tasks: usize) -> Result<(), Error> {
    let bus = Bus::connect(url).await?;
    let ventilator = Pipeline::new(&bus, topic).ventilator();
    let batch = vec![vec![7_u8; bytes]; BATCH];
    for _ in 0..tasks.div_ceil(BATCH) {
        ventilator.push_batch(&batch).await?;
    }
    Ok(())
}

async fn acked(url: &str, tasks: usize) -> Result<(), Error> {
    let bus = Bus::connect(url).await?;
    let mut worker = Pipeline::new(&bus, "acked").unacknowledged_max(4096).worker::<Vec<u8>>().await?;
    let mut begin = None;
    for _ in 0..tasks {
        let Some(task) = worker.next().await? else { return Err("the server has stopped".into()) };
        begin.get_or_insert_with(Instant::now);
        task.finish();
    }
    worker.settled().await?;
    report(begin, tasks)
}

async fn plain(url: &str, tasks: usize) -> Result<(), Error> {
    let bus = Bus::connect(url).await?;
    let mut entries = bus.subscribe::<Vec<u8>>("plain").group("workers").await?;
    let (mut begin, mut received) = (None, 0);
    while received < tasks {
        match entries.next().await? {
            Some(Delivery::Entry(_)) => received += 1,
            Some(Delivery::Gap(gap)) => return Err(gap.to_string().into()),
            Some(_) => {}
            None => return Err("the server has stopped".into()),
        }
        begin.get_or_insert_with(Instant::now);
    }
    report(begin, tasks)
}

fn report(begin: Option<Instant>, tasks: usize) -> Result<(), Error> {
    let begin = begin.ok_or("no task was received")?;
    println!("{:.0}", tasks as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}
