//! `switchboard serve`: the demo services, without the tour.

use crate::{
    log::{self, Level},
    services,
    serving::{self, Stop},
    tls::{self, TlsArgs},
};
use clap::{Args, value_parser};
use std::{path::PathBuf, time::Duration};
use switchboard::{Limits, Runtime, limits::Source};

/// `switchboard serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen at ADDRESS: HOST:PORT or unix:/PATH; port 0 takes a free one. May be given several times.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Set a limit, as in message_bytes_max=8MiB; --print-limits shows all. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    limit: Vec<String>,
    /// Time that a peer gets to show which protocol it speaks, as in 300ms; short for --limit
    /// sniff_timeout=TIME.
    #[arg(long, value_name = "TIME", value_parser = |text: &str| setting(&format!("sniff_timeout={text}")))]
    sniff_timeout: Option<String>,
    /// Time that calls get to end after Ctrl-C, as in 10s; short for --limit drain_timeout=TIME.
    #[arg(long, value_name = "TIME", value_parser = |text: &str| setting(&format!("drain_timeout={text}")))]
    drain_timeout: Option<String>,
    /// Let web pages of ORIGIN open WebSockets, as in `https://app.example`, or all with *; pages from the same host and
    /// port may always. May be given several times.
    #[arg(long, value_name = "ORIGIN")]
    websocket_origin: Vec<String>,
    /// Compress the messages of WebSockets whose callers offer it; off because the sizes then tell something about
    /// their content.
    #[arg(long)]
    websocket_deflate: bool,
    /// Show what the server does at ADDRESS, as in 127.0.0.1:9090 or unix:/PATH, which must be of this machine: status,
    /// calls, flags, and metrics for Prometheus.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    admin: Option<String>,
    /// Log one call in N [default: none]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    access_log: Option<u32>,
    /// Log calls that take at least TIME, as in 200ms [default: none]
    #[arg(long, value_name = "TIME", value_parser = time)]
    slow_call: Option<Duration>,
    /// After Ctrl-C, go on for TIME before callers are told, so that load balancers hear of it first [default: none]
    #[arg(long, value_name = "TIME", value_parser = time)]
    notice: Option<Duration>,
    /// Take over the listeners of the server that waits at PATH, if there is one, and wait there for the next.
    #[arg(long, value_name = "PATH")]
    handover: Option<PathBuf>,
    /// Serve grpc.channelz.v1.Channelz too, which shows every caller's address to whoever may call.
    #[arg(long)]
    channelz: bool,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Microseconds that a thread polls on after traffic before it sleeps; 0 sleeps at once.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = microseconds())]
    spin_us: u32,
    /// Log events of this level and graver ones on standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    log: Level,
    /// Print the limits in force and where each came from, and end.
    #[arg(long)]
    print_limits: bool,
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When an address cannot be listened on.
pub(crate) fn run(args: ServeArgs) -> Result<(), String> {
    let limits = args.limits()?;
    if args.print_limits {
        return serving::print(&limits.table());
    }
    log::install(args.log);
    let mut runtime = Runtime::new().spin(Duration::from_micros(args.spin_us.into()));
    if let Some(workers) = args.workers {
        runtime = runtime.workers(workers.into());
    }
    runtime.run(async move {
        let mut server = services::server().limits(limits).websocket_origins(args.websocket_origin);
        if args.websocket_deflate {
            server = server.websocket_deflate();
        }
        if args.channelz {
            server = server.channelz();
        }
        if let Some(admin) = args.admin {
            server = server.admin(admin);
        }
        if let Some(path) = args.handover {
            server = server.handover(path);
        }
        server = server
            .access_log(args.access_log.unwrap_or_default())
            .slow_call(args.slow_call.unwrap_or_default())
            .notice(args.notice.unwrap_or_default());
        let tls = args.tls.settings();
        for address in &args.listen {
            server = tls::listen(server, address, tls.as_ref());
        }
        let stop = Stop::install()?;
        let running = serving::start(server).await?;
        let lines =
            running.addresses().iter().map(|address| format!("listening on {}\n", serving::url(address)));
        let mut lines = lines.collect::<String>();
        if let Some(admin) = running.admin() {
            lines.push_str(&format!("admin pages on {}\n", serving::url(admin)));
        }
        serving::print(&lines)?;
        serving::until_stopped(running, stop).await;
        Ok(())
    })
}

impl ServeArgs {
    /// The defaults and, in the order of the help, what flags set.
    fn limits(&self) -> Result<Limits, String> {
        let mut limits = Limits::default();
        for setting in self.limit.iter().chain(&self.sniff_timeout).chain(&self.drain_timeout) {
            limits.parse(setting, Source::Flag).map_err(|error| error.to_string())?;
        }
        Ok(limits)
    }
}

/// Up to a second.
fn microseconds() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(..=1_000_000)
}

/// `NAME=VALUE`, checked; a mistake is one of usage.
fn setting(text: &str) -> Result<String, String> {
    let checked = Limits::default().parse(text, Source::Flag);
    checked.map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// A time as limits spell it.
fn time(text: &str) -> Result<Duration, String> {
    let time = Limits::parse_time(text).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("expected more than nothing".to_owned()) } else { Ok(time) }
}

/// An address, checked; its options are left to the server.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let checked = text.split('?').next().unwrap_or_default().parse::<switchboard::Address>();
    checked.map(|_| text.to_owned()).map_err(|status| status.message().to_owned())
}
