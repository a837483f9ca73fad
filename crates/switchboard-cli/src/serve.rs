//! `switchboard serve`: the demo services, without the demo's calls.

use crate::{
    config::{Config, Prepared, Root},
    log::{self, Level},
    registration, services,
    serving::{self, Stop},
    tls::{self, TlsArgs},
};
use clap::{Args, ValueEnum, value_parser};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use switchboard::{Limits, Running, Runtime, Server, limits::Source};
use switchboard_registry::EmbeddedServer;

/// `switchboard serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Take settings from this TOML file, and from variables like SWITCHBOARD_SERVE_LISTEN; flags override both. SIGHUP
    /// reads it again. See `switchboard config`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen at ADDRESS: HOST:PORT or unix:/PATH; port 0 takes a free one. May be given several times [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Set a limit, as in message_bytes_max=8MiB; --print-limits shows all. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    limit: Vec<String>,
    /// Time limit for detecting the protocol of a peer, as in 300ms; short for --limit
    /// sniff_timeout=TIME.
    #[arg(long, value_name = "TIME", value_parser = |text: &str| setting(&format!("sniff_timeout={text}")))]
    sniff_timeout: Option<String>,
    /// Time limit for calls to end after Ctrl-C, as in 10s; short for --limit drain_timeout=TIME.
    #[arg(long, value_name = "TIME", value_parser = |text: &str| setting(&format!("drain_timeout={text}")))]
    drain_timeout: Option<String>,
    /// Let web pages of ORIGIN open WebSockets, as in `https://app.example`, or all with *; pages of the server's own host
    /// may where that is an address, localhost or a --host. May be given several times.
    #[arg(long, value_name = "ORIGIN")]
    websocket_origin: Vec<String>,
    /// A host name under which browsers reach the server, as in app.example, against DNS rebinding; addresses and
    /// localhost always pass. May be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Compress the messages of WebSockets whose callers offer it; off because the sizes then reveal something about
    /// their content.
    #[arg(long)]
    websocket_deflate: bool,
    /// Show the state of the server at ADDRESS, as in 127.0.0.1:9090 or unix:/PATH, which must be of this machine:
    /// status, calls, flags, and metrics for Prometheus.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    admin: Option<String>,
    /// Register the services with the registry at URL, as in switchboard://127.0.0.1:7000 or
    /// etcd://10.0.0.1:2379/fleet, and deregister them first when this server stops. May be given several times.
    #[arg(long, value_name = "URL", value_parser = registry)]
    register: Vec<String>,
    /// Describe the server to registries, as in zone=eu-1a: address, group, notice, tags, version, weight or zone. May
    /// be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = said)]
    register_as: Vec<String>,
    /// Be a registry as well, for servers that --register switchboard://HOST:PORT of this one. Its instances are in
    /// memory, and every client that may call this server may register.
    #[arg(long)]
    registry: bool,
    /// Serve topics for `switchboard bus`, GET /events, and clients of ZeroMQ and Redis; those of NATS with --listen
    /// nats://HOST:PORT. They are in memory, keep 1,000 entries for an hour, and every client that may call this server
    /// may publish and subscribe.
    #[arg(long)]
    topics: bool,
    /// Serve topics as with --topics, and keep their entries, and the positions of durable cursors, in files of this
    /// folder: they survive the end of the process, also by a signal.
    #[arg(long, value_name = "FOLDER")]
    topics_folder: Option<PathBuf>,
    /// Log one call in N [default: none]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    access_log: Option<u32>,
    /// Log calls that take at least TIME, as in 200ms [default: none]
    #[arg(long, value_name = "TIME", value_parser = time)]
    slow_call: Option<String>,
    /// After Ctrl-C, serve on for TIME before callers are notified, so that load balancers notice first [default: none]
    #[arg(long, value_name = "TIME", value_parser = time)]
    notice: Option<String>,
    /// Take over the listeners of the server that waits at PATH, if there is one, and wait there for the next.
    #[arg(long, value_name = "PATH")]
    handover: Option<PathBuf>,
    /// Serve grpc.channelz.v1.Channelz too, which shows every caller's address to every client that may call.
    #[arg(long)]
    channelz: bool,
    /// Refuse requests in JSON or MessagePack with fields that their types do not have; calls choose for themselves
    /// with the metadata switchboard-strict-fields.
    #[arg(long)]
    strict_fields: bool,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Microseconds that a thread polls on after traffic before it sleeps; 0 sleeps at once [default: 100]
    #[arg(long, value_name = "N", value_parser = microseconds())]
    spin_us: Option<u32>,
    /// Log events of this level and above on standard error [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    log: Option<Level>,
    /// Print the limits in effect and their sources, and end.
    #[arg(long)]
    print_limits: bool,
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When a setting is invalid, or an address cannot be listened on.
pub(crate) fn run(args: ServeArgs) -> Result<(), String> {
    let mut config = args.config()?;
    let limits = config.limits()?;
    if args.print_limits {
        return serving::print(&limits.table());
    }
    let level = config.text("log").and_then(|level| Level::from_str(&level, false).ok());
    log::install(level.unwrap_or(Level::Info));
    let mut runtime = Runtime::new();
    if let Some(spin) = config.count("spin_us") {
        runtime = runtime.spin(Duration::from_micros(spin));
    }
    if let Some(workers) = config.count("workers") {
        runtime = runtime.workers(workers as usize);
    }
    let tls = config.tls()?;
    runtime.run(async move {
        let mut server = registration::registered(server(&config)?.limits(limits), &config)?;
        for address in config.texts("listen") {
            server = tls::listen(server, &address, tls.as_ref());
        }
        let stop = Stop::install()?;
        let running = serving::start(server).await?;
        let listens = config.texts("listen");
        let lines = running.addresses().iter().enumerate().map(|(at, address)| {
            let url = serving::url(address);
            // An address does not have the wire that its listener is for.
            let is_nats = listens.get(at).is_some_and(|listen| listen.starts_with("nats://"));
            let url = if is_nats { url.replacen("http", "nats", 1) } else { url };
            format!("listening on {url}\n")
        });
        let mut lines = lines.collect::<String>();
        if let Some(admin) = running.admin() {
            lines.push_str(&format!("admin pages on {}\n", serving::url(admin)));
        }
        serving::print(&lines)?;
        let reload =
            |running: &Running| config.follow(args.config(), running, |_, _| Ok(Prepared::nothing()));
        serving::until_stopped(running, stop, reload).await;
        Ok(())
    })
}

/// Creates a server with the services and all settings except listeners and limits.
///
/// # Errors
/// When the topics cannot be created.
fn server(config: &Config) -> Result<Server, String> {
    let mut server = services::server()
        .websocket_origins(config.texts("websocket.origins"))
        .access_log(config.count("access_log").unwrap_or_default() as u32)
        .slow_call(config.time("slow_call"))
        .notice(config.time("notice"));
    for host in config.texts("hosts") {
        server = server.host(host);
    }
    if config.is_on("websocket.deflate") {
        server = server.websocket_deflate();
    }
    if let Some(admin) = config.text("admin") {
        server = server.admin(admin);
    }
    if let Some(path) = config.text("handover") {
        server = server.handover(path);
    }
    if config.is_on("channelz") {
        server = server.channelz();
    }
    if config.is_on("strict_fields") {
        server = server.strict_fields();
    }
    if config.is_on("registry") {
        server = server.add(EmbeddedServer::new());
    }
    let folder = config.text("topics_folder");
    if config.is_on("topics") || folder.is_some() {
        let folder = folder.as_deref().map(Path::new);
        server = services::with_topics(server, folder).map_err(|status| status.to_string())?;
    }
    Ok(server)
}

impl ServeArgs {
    /// Returns the settings of the file and the environment, overridden by the flags.
    fn config(&self) -> Result<Config, String> {
        let mut config = Config::load(Root::Serve, self.config.as_deref())?;
        let path = |path: &PathBuf| path.display().to_string();
        config.limit_flags(self.limit.iter().chain(&self.sniff_timeout).chain(&self.drain_timeout))?;
        for (name, file) in self.tls.given() {
            config.flag(name, file.map(path))?;
        }
        config.flag("listen", self.listen.clone())?;
        config.flag("hosts", self.host.clone())?;
        config.flag("websocket.origins", self.websocket_origin.clone())?;
        config.flag("websocket.deflate", self.websocket_deflate.then(|| "true".to_owned()))?;
        config.flag("channelz", self.channelz.then(|| "true".to_owned()))?;
        config.flag("register.to", self.register.clone())?;
        for name in registration::NAMES {
            let given = self.register_as.iter().filter_map(|said| said.split_once('='));
            let given = given.filter(|(said, _)| *said == name).map(|(_, value)| value.to_owned());
            config.flag(&format!("register.{name}"), given)?;
        }
        config.flag("strict_fields", self.strict_fields.then(|| "true".to_owned()))?;
        config.flag("registry", self.registry.then(|| "true".to_owned()))?;
        config.flag("topics", self.topics.then(|| "true".to_owned()))?;
        config.flag("topics_folder", self.topics_folder.as_ref().map(path))?;
        config.flag("admin", self.admin.clone())?;
        config.flag("access_log", self.access_log.map(|every| every.to_string()))?;
        config.flag("slow_call", self.slow_call.clone())?;
        config.flag("notice", self.notice.clone())?;
        config.flag("handover", self.handover.as_ref().map(path))?;
        config.flag("workers", self.workers.map(|workers| workers.to_string()))?;
        config.flag("spin_us", self.spin_us.map(|spin| spin.to_string()))?;
        let level = self.log.and_then(|level| level.to_possible_value());
        config.flag("log", level.map(|level| level.get_name().to_owned()))?;
        Ok(config)
    }
}

/// Parses microseconds up to a second.
pub(crate) fn microseconds() -> clap::builder::RangedI64ValueParser<u32> {
    value_parser!(u32).range(..=1_000_000)
}

/// Checks `NAME=VALUE`; an error is a usage error.
pub(crate) fn setting(text: &str) -> Result<String, String> {
    let checked = Limits::default().parse(text, Source::Flag);
    checked.map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// Checks a time in the form of limits.
pub(crate) fn time(text: &str) -> Result<String, String> {
    Limits::parse_time(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Checks the address of a registry.
fn registry(text: &str) -> Result<String, String> {
    let kinds = "expected switchboard://HOST:PORT, etcd://…, consul://… or file:PATH, say";
    switchboard_registry::is_registry(text).then(|| text.to_owned()).ok_or_else(|| kinds.to_owned())
}

/// Checks a description of the server, by its name.
fn said(text: &str) -> Result<String, String> {
    let name = text.split_once('=').map(|(name, _)| name);
    match name.filter(|name| registration::NAMES.contains(name)) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("expected NAME=VALUE, where NAME is one of {}", registration::NAMES.join(", "))),
    }
}

/// Checks an address; its options are checked by the server.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let plain = text.split('?').next().unwrap_or_default();
    // The wire of a listener, where it is no transport.
    let plain = plain.strip_prefix("nats://").unwrap_or(plain);
    let checked = plain.parse::<switchboard::Address>();
    checked.map(|_| text.to_owned()).map_err(|status| status.message().to_owned())
}
