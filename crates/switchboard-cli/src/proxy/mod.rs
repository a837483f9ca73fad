//! `switchboard proxy`: in front of any server, accepts any wire and hands calls on over any other.
//!
//! ```text
//! callers ─► listeners ─► guards ─► tap ─► Forward (rewrites messages) ─► channel: balancing, retries ─► servers
//! ```
//!
//! Services of the [schema](known) are declared as a server's own are; calls of all others go through as bytes.

mod args;
mod known;
mod rewrite;
mod rules;
mod settings;
mod tap;
mod upstream;

pub(crate) use args::ProxyArgs;

use crate::{
    log,
    serving::{self, Stop},
    tls,
};
use known::Known;
use rewrite::Rewrite;
use std::{collections::HashMap, time::Duration};
use switchboard::{
    Call, Limits, Reply, Runtime, Server, Service, ServiceInfo, Status, guard::Rate, proxy::Forward,
};
use tap::Tap;
use upstream::Upstream;

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When a setting cannot be, the schema cannot be read, or an address cannot be listened on.
pub(crate) fn run(args: ProxyArgs) -> Result<(), String> {
    let mut config = args.config()?;
    let (limits, own) = (config.limits()?, args);
    let args = ProxyArgs::of(&config)?;
    log::install(args.log);
    let mut runtime = Runtime::new().spin(Duration::from_micros(args.spin_us.into()));
    if let Some(workers) = args.workers {
        runtime = runtime.workers(workers.into());
    }
    runtime.run(async move {
        let upstream = Upstream::new(&args)?;
        let known = Known::of(&args, &upstream).await?;
        let tap = args.tap.start(&known)?;
        let mut server = forwarding(guarded(&args, limits)?, &args, &upstream, &known)?;
        if let Some(tap) = &tap {
            server = server.layer(tap.clone());
        }
        let tls = args.tls.settings();
        for address in &args.listen {
            server = tls::listen(server, address, tls.as_ref());
        }
        let stop = Stop::install()?;
        let running = serving::start(server).await?;
        let mut lines: String = running
            .addresses()
            .iter()
            .map(|address| format!("listening on {}\n", serving::url(address)))
            .collect();
        if let Some(admin) = running.admin() {
            lines.push_str(&format!("admin pages on {}\n", serving::url(admin)));
        }
        // The tap's lines are what standard output is for.
        match tap.as_ref().is_some_and(Tap::is_on_stdout) {
            true => eprint!("{lines}"),
            false => serving::print(&lines)?,
        }
        serving::until_stopped(running, stop, |running| config.follow(own.config(), running)).await;
        if let Some(tap) = tap {
            tap.end();
        }
        Ok(())
    })
}

/// A server with its limits, guards and admin pages, and no service yet.
fn guarded(args: &ProxyArgs, limits: Limits) -> Result<Server, String> {
    let time = |text: &Option<String>| {
        let time = text.as_deref().map(Limits::parse_time).transpose();
        time.map_err(|error| error.to_string())
    };
    let mut server = Server::new()
        .limits(limits)
        .access_log(args.access_log.unwrap_or_default())
        .slow_call(time(&args.slow_call)?.unwrap_or_default());
    if let Some(calls) = args.concurrency {
        server = server.concurrency(calls);
    }
    if let Some(calls) = args.rate {
        server = server.rate(Rate::per_second(calls.into()).by_peer());
    }
    if let Some(most) = time(&args.deadline_max)? {
        server = server.deadline_max(most);
    }
    Ok(match &args.admin {
        Some(admin) => server.admin(admin.as_str()),
        None => server,
    })
}

/// The server with what it hands on: the services of the schema, and those of which nothing is known.
fn forwarding(
    mut server: Server,
    args: &ProxyArgs,
    upstream: &Upstream,
    known: &Known,
) -> Result<Server, String> {
    let rewrite = Rewrite::new(known);
    for function in &args.function {
        server = server.alias(format!("kiss/{}", function.number), function.method.as_str());
    }
    for service in &known.services {
        let mut forward = Forward::service(service.info, upstream.channel(service.info.name)?);
        if let Some(codec) = upstream.best_of(&service.codecs) {
            forward = forward.codec(codec);
        }
        server = server.add(forward.translate(rewrite.clone()));
    }
    let is_known = |name: &&String| known.services.iter().any(|service| service.info.name == **name);
    let others: Vec<_> = args.service.iter().filter(|name| !is_known(name)).cloned().collect();
    if args.known_only || (others.is_empty() && !args.service.is_empty()) {
        return match known.services.is_empty() {
            true => {
                Err("--known-only needs a schema: --proto, --thrift, --fbs, --descriptor-set or --reflect"
                    .to_owned())
            }
            false => Ok(server),
        };
    }
    if !upstream.is_registry() {
        let forward = Forward::any(upstream.channel("")?).translate(rewrite);
        return Ok(server.fallback(forward, others));
    }
    if others.is_empty() {
        return match known.services.is_empty() {
            true => Err(
                "a registry knows servers by their services: name them with --service, or give the schema \
                         with --proto, --descriptor-set, --thrift or --fbs"
                    .to_owned(),
            ),
            false => Ok(server),
        };
    }
    let mut forwards = HashMap::new();
    for name in &others {
        let forward = Forward::any(upstream.channel(name)?).translate(rewrite.clone());
        forwards.insert(name.clone(), forward);
    }
    Ok(server.fallback(ByService(forwards), others))
}

/// Services of which nothing is known, each with servers of its own.
struct ByService(HashMap<String, Forward>);

impl Service for ByService {
    fn info(&self) -> &'static ServiceInfo {
        static MANY: ServiceInfo = ServiceInfo { name: "*", methods: &[], descriptor: &[] };
        &MANY
    }

    async fn call(&self, call: Call) -> switchboard::Result<Reply> {
        let name = call.cx().service().name;
        match self.0.get(name) {
            Some(forward) => forward.call(call).await,
            None => Err(Status::unimplemented(format!("unknown service {name}"))),
        }
    }
}
