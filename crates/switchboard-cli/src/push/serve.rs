//! `switchboard push serve`.

use super::{hints, page, settings::GatewayArgs};
use crate::{
    config::Prepared,
    log,
    serving::{self, Stop},
    tls,
};
use std::{net::IpAddr, time::Duration};
use switchboard::{Address, Running, Runtime, Server};

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// When a setting is invalid, or an address cannot be listened on.
pub(super) fn run(own: GatewayArgs) -> Result<(), String> {
    let mut config = own.settings()?;
    let (args, limits) = (GatewayArgs::of(&config)?, config.limits()?);
    let gateway = args.gateway()?;
    log::install(args.log);
    let mut runtime = Runtime::new().spin(Duration::from_micros(args.spin_us.into()));
    if let Some(workers) = args.workers {
        runtime = runtime.workers(workers.into());
    }
    runtime.run(async move {
        let mut server = Server::new().limits(limits).websocket_origins(args.websocket_origin.clone());
        for host in &args.host {
            server = server.host(host);
        }
        if let Some(admin) = &args.admin {
            server = server.admin(admin.as_str());
        }
        server = gateway.add_to(page::add(server)).await?;
        let tls = args.tls.settings();
        for address in &args.listen {
            server = tls::listen(server, address, tls.as_ref());
        }
        for address in &args.goim_listen {
            let separator = if address.contains('?') { '&' } else { '?' };
            server = tls::listen(server, &format!("{address}{separator}wires=goim"), tls.as_ref());
        }
        let stop = Stop::install()?;
        let running = serving::start(server).await?;
        if gateway.is_open() {
            warn_of_reach(&running);
        }
        let shared = args.listen.len();
        serving::print(&listeners(&running, shared))?;
        if let Some(address) = running.addresses().first().filter(|address| is_tcp(address)) {
            serving::print(&hints::commands(&serving::url(address), &gateway))?;
        }
        let reload =
            |running: &Running| config.follow(own.settings(), running, |_, _| Ok(Prepared::nothing()));
        serving::until_stopped(running, stop, reload).await;
        Ok(())
    })
}

/// Warns of listeners at which other machines can push without a token.
fn warn_of_reach(running: &Running) {
    for address in running.addresses() {
        let (Address::Tcp(host, _) | Address::Tls(host, _)) = address else { continue };
        let is_local = host.parse().map_or(host == "localhost", |address: IpAddr| address.is_loopback());
        if !is_local {
            tracing::warn!(%address, "--open: every machine that reaches this address may push to all devices");
        }
    }
}

fn is_tcp(address: &Address) -> bool {
    matches!(address, Address::Tcp(..) | Address::Tls(..))
}

/// Returns a line for each listener; those after the first `shared` ones are of goim.
fn listeners(running: &Running, shared: usize) -> String {
    let mut lines = String::new();
    for (at, address) in running.addresses().iter().enumerate() {
        let url = serving::url(address);
        let url = if at < shared { url } else { format!("{address} for goim") };
        lines.push_str(&format!("listening on {url}\n"));
    }
    if let Some(admin) = running.admin() {
        lines.push_str(&format!("admin pages on {}\n", serving::url(admin)));
    }
    lines
}
