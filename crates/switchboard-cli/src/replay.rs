//! `switchboard replay`: sends the calls of a server's dump again.

use crate::call::parse_metadata;
use bytes::Bytes;
use clap::Args;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use switchboard::{Channel, ClientMethod, Code, Idempotency, Kind, Limits, Runtime, Status, layer::Dumped};
use tokio::sync::{Mutex, mpsc};

/// Longest line of a dump; longer ones are refused.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Error texts that are shown for one code.
const SHOWN_MAX: usize = 1;

/// `switchboard replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// File that the layer `Dump` of a server has written.
    file: PathBuf,
    /// The server, as channels take it: tcp://10.0.0.7:8080?wire=grpc, or several.
    url: String,
    /// Calls at the same time.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    callers: u32,
    /// Calls a second; as fast as the callers can unless set.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// Sends the file so often.
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Time limit of a call: 300ms, 10s.
    #[arg(long, default_value = "10s", value_parser = Limits::parse_time)]
    timeout: Duration,
    /// Metadata of every call, credentials say: 'name: value'.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, Bytes)>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1e9).contains(rate));
    rate.ok_or_else(|| "expected calls a second, more than 0".to_owned())
}

/// Sends the calls and prints their results; failed calls do not fail the replay.
pub(crate) fn run(args: ReplayArgs) -> Result<(), String> {
    Runtime::new().run(replay(Arc::new(args)))
}

async fn replay(args: Arc<ReplayArgs>) -> Result<(), String> {
    // Checked before anything is sent.
    open(&args.file)?;
    let channel = Channel::connect(&args.url).await.map_err(|status| status.to_string())?;
    let (queue, calls) = mpsc::channel(2 * args.callers as usize);
    let calls = Arc::new(Mutex::new(calls));
    let began = Instant::now();
    let reading = args.clone();
    let reader =
        thread::Builder::new().spawn(move || read(&reading, &queue)).map_err(|error| error.to_string())?;
    let caller = |_| {
        let (channel, calls, args) = (channel.clone(), calls.clone(), args.clone());
        tokio::spawn(async move {
            let mut ends = Ends::default();
            loop {
                // Waits for the next call without delaying the calls of other tasks.
                let next = calls.lock().await.recv().await;
                let Some(dumped) = next else { return ends };
                let began = Instant::now();
                let outcome = send(&channel, &args, &dumped).await;
                ends.add(outcome, began.elapsed());
            }
        })
    };
    let callers: Vec<_> = (0..args.callers).map(caller).collect();
    let mut ends = Ends::default();
    for caller in callers {
        ends.merge(caller.await.map_err(|error| error.to_string())?);
    }
    print!("{}", ends.text(began.elapsed()));
    // Calls before a malformed line are sent.
    reader.join().map_err(|_| "the dump could not be read")?
}

async fn send(channel: &Channel, args: &ReplayArgs, dumped: &Dumped) -> Result<(), Status> {
    let wrong = |error: switchboard::Error| Status::invalid_argument(error.to_string());
    let (codec, message) = (dumped.codec().map_err(wrong)?, dumped.message().map_err(wrong)?);
    if channel.codec(codec) != codec {
        let text = format!("{} is in {codec}, which the wire does not carry", dumped.method);
        return Err(Status::invalid_argument(text));
    }
    let method = ClientMethod::intern(&dumped.method, Kind::Unary, Idempotency::Unknown)?;
    let call = channel.unary(method, codec, Ok(Bytes::from(message)), |_, _| Ok(())).timeout(args.timeout);
    let call = dumped.metadata.iter().fold(call, |call, (name, value)| call.meta(name, value.clone()));
    let call = args.metadata.iter().fold(call, |call, (name, value)| call.meta(name, value.clone()));
    call.await.map(drop)
}

/// Reads the file as often as it is sent, at the requested rate.
fn read(args: &ReplayArgs, queue: &mpsc::Sender<Dumped>) -> Result<(), String> {
    let (began, mut sent) = (Instant::now(), 0u64);
    for _ in 0..args.times {
        let mut file = BufReader::new(open(&args.file)?);
        let mut line = String::new();
        for number in 1u64.. {
            line.clear();
            let at = |why: &dyn std::fmt::Display| place(&args.file, number, why);
            if file.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(|error| at(&error))? == 0 {
                break;
            }
            let dumped = Dumped::read(&line).map_err(|error| at(&error))?;
            if let Some(rate) = args.rate {
                let due = began + Duration::from_secs_f64(sent as f64 / rate);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            sent += 1;
            if queue.blocking_send(dumped).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn place(file: &Path, number: u64, why: &dyn std::fmt::Display) -> String {
    format!("{}, line {number}: {why}", file.display())
}

/// The results of calls, by code.
#[derive(Default)]
struct Ends {
    times: Vec<Duration>,
    failures: BTreeMap<&'static str, (u64, Vec<String>)>,
}

impl Ends {
    fn add(&mut self, outcome: Result<(), Status>, took: Duration) {
        match outcome {
            Ok(()) => self.times.push(took),
            Err(status) => self.fail(status.code().name(), 1, [status.message().to_owned()]),
        }
    }

    fn fail(&mut self, code: &'static str, calls: u64, texts: impl IntoIterator<Item = String>) {
        let (count, shown) = self.failures.entry(code).or_default();
        *count += calls;
        shown.extend(texts);
        shown.truncate(SHOWN_MAX);
    }

    fn merge(&mut self, other: Ends) {
        self.times.extend(other.times);
        for (code, (calls, texts)) in other.failures {
            self.fail(code, calls, texts);
        }
    }

    fn text(&mut self, took: Duration) -> String {
        self.times.sort_unstable();
        let failed: u64 = self.failures.values().map(|(calls, _)| calls).sum();
        let calls = self.times.len() as u64 + failed;
        let rate = calls as f64 / took.as_secs_f64().max(1e-9);
        let mut text = format!("{calls} calls in {took:.2?}, {rate:.0} a second\n");
        if let Some(most) = self.times.last() {
            let at = |part: f64| self.times[(self.times.len() as f64 * part) as usize];
            let (ok, half, late) = (self.times.len(), at(0.5), at(0.99));
            text += &format!(
                "  {} {ok}: half in {half:.0?}, 99 of 100 in {late:.0?}, all in {most:.0?}\n",
                Code::Ok.name()
            );
        }
        for (code, (calls, texts)) in &self.failures {
            text += &format!("  {code} {calls}: {}\n", texts.join("; "));
        }
        text
    }
}
