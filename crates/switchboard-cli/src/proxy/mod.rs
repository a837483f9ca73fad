//! `switchboard proxy`: in front of any server, accepts any wire and forwards calls over any other.
//!
//! ```text
//! callers ─► listeners ─► guards ─► tap ─► Onward ─► Forward (converts messages) ─► channel: balancing ─► servers
//! ```
//!
//! SIGHUP [replaces](reload) everything behind the listeners, while running calls continue.
//!
//! Services of the [schema](schema) are declared as on a server; calls of all others are forwarded as bytes.

mod args;
mod current;
mod onward;
mod reload;
mod rewrite;
mod rules;
mod schema;
mod settings;
mod tap;
mod upstream;

pub(crate) use args::ProxyArgs;

use crate::{
    log,
    serving::{self, Stop},
    tls,
};
use onward::UpstreamRoutes;
use reload::Reloading;
use schema::ProxySchema;
use std::time::Duration;
use switchboard::{
    Flag, Limit, Limits, Running, Runtime, Server,
    guard::{Concurrency, Rate},
    limits::Unit,
};
use tap::Tap;
use upstream::Upstream;

/// Longest deadline of calls, a year in milliseconds.
const DEADLINE_MAX: u64 = 365 * 24 * 3_600_000;

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When a setting is invalid, the schema cannot be read, or an address cannot be listened on.
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
        let known = ProxySchema::of(&args, &upstream).await?;
        let tap = args.tap.start(&known)?;
        let drain = Duration::from_millis(limits.get(Limit::DrainTimeout));
        let (mut server, routes) = UpstreamRoutes::first(guarded(&args, limits)?, &args, &upstream, &known)?;
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
        // Standard output is for the lines of the tap.
        match tap.as_ref().is_some_and(Tap::is_on_stdout) {
            true => eprint!("{lines}"),
            false => serving::print(&lines)?,
        }
        // The routes are replaced as a whole.
        drop(upstream);
        let reloading = Reloading { routes, tap, drain };
        let reload = |running: &Running| {
            config.follow(own.config(), running, |new, changed| reloading.prepare(new, changed));
        };
        serving::until_stopped(running, stop, reload).await;
        if let Some(tap) = &reloading.tap {
            tap.end();
        }
        Ok(())
    })
}

/// Creates a server with its limits, guards and admin pages, and no service yet.
fn guarded(args: &ProxyArgs, limits: Limits) -> Result<Server, String> {
    let time = |text: &Option<String>| {
        let time = text.as_deref().map(Limits::parse_time).transpose();
        time.map_err(|error| error.to_string())
    };
    let server = Server::new()
        .limits(limits)
        .access_log(args.access_log.unwrap_or_default())
        .slow_call(time(&args.slow_call)?.unwrap_or_default());
    // Flags, so that a reload or the admin page may set them while calls run; 0 means none.
    let calls = Flag::new(
        "concurrency",
        Unit::Count,
        args.concurrency.unwrap_or_default().into(),
        0..=u32::MAX.into(),
        "calls that run at once; 0: no limit",
    );
    let rate = Flag::new(
        "rate",
        Unit::Count,
        args.rate.unwrap_or_default().into(),
        0..=u32::MAX.into(),
        "calls per second from each peer; 0: no limit",
    );
    let most = time(&args.deadline_max)?.unwrap_or_default().as_millis() as u64;
    if most > DEADLINE_MAX {
        return Err("--deadline-max is more than 8760h; omit it for no limit".to_owned());
    }
    let most = Flag::new(
        "deadline_max",
        Unit::Milliseconds,
        most,
        0..=DEADLINE_MAX,
        "calls are ended after this time, even if their callers allow more; 0: no limit",
    );
    let server = server
        .flag(&calls)
        .concurrency(Concurrency::Flag(calls))
        .rate(Rate::by_flag(&rate).by_peer())
        .flag(&rate)
        .deadline_max_by_flag(&most)
        .flag(&most);
    Ok(match &args.admin {
        Some(admin) => server.admin(admin.as_str()),
        None => server,
    })
}
