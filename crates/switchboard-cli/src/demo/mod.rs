//! `switchboard demo`: the services on one port, called over every wire.
//!
//! [`ours`] calls with generated clients, [`web`] and [`jsonrpc`] with plain requests, [`thrift`] a separate service,
//! [`topics`] subscribes, [`rooms`] has members of a push gateway;
//! [`answers`] has the requests and expected replies, [`table`] prints both, [`hints`] suggests commands.

mod answers;
mod hints;
mod jsonrpc;
mod ours;
mod rooms;
mod table;
mod thrift;
mod topics;
mod web;

use crate::{
    log::{self, Level},
    serve::address,
    services::{self, kiss},
    serving::{self, Stop, print},
    tls::{self, TlsArgs},
};
use clap::Args;
use switchboard::{Address, Runtime};
use table::Row;

/// `switchboard demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Listen at HOST:PORT; port 0 takes a free one [default: 127.0.0.1:8080, with --once 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// End after the table, with exit code 0 if every answer is right and 1 otherwise.
    #[arg(long)]
    once: bool,
    /// Print the table as JSON: an array with an object for each call.
    #[arg(long)]
    json: bool,
}

/// Address of the same server without a socket.
const MEMORY: &str = "memory://demo";

/// Serves, calls, prints, and continues to serve until Ctrl-C or SIGTERM.
///
/// # Errors
/// When the address cannot be listened on or a reply is wrong.
pub(crate) fn run(args: DemoArgs) -> Result<(), String> {
    log::install(Level::Warn);
    Runtime::new().run(async move {
        let default = if args.once { "127.0.0.1:0" } else { "127.0.0.1:8080" };
        let listen = args.listen.as_deref().unwrap_or(default);
        let stop = Stop::install()?;
        let tls = args.tls.settings();
        let server = kiss::named(services::server().add(thrift::service()));
        let server = services::with_topics(server, None).map_err(|status| status.to_string())?;
        let mut server = tls::listen(server, listen, tls.as_ref()).listen(MEMORY);
        if tls.is_some() {
            // A listener without TLS: the demo's own calls have no client certificate and no trusted root.
            server = server.listen("127.0.0.1:0");
        }
        // Servers of NATS speak first, so they have listeners of their own.
        let running = serving::start(server.listen("nats://127.0.0.1:0")).await?;
        let (nats, others) = running.addresses().split_last().ok_or("the demo has no listener")?;
        let address = dialable(others)?;
        let nats = nats.to_string();
        let nats = nats.rsplit("://").next().unwrap_or_default();
        if !args.json {
            print(&hints::services(&serving::url(&running.addresses()[0])))?;
        }
        let mut rows = ours::rows(&address, MEMORY).await?;
        rows.extend(web::rows(&format!("http://{address}")).await?);
        rows.extend(jsonrpc::rows(&address).await?);
        rows.extend(thrift::rows(&address).await?);
        rows.extend(topics::rows(&address, nats).await?);
        rows.extend(rooms::rows().await?);
        print(&if args.json { table::json(&rows) } else { table::text(&rows) })?;
        let wrong = rows.iter().filter(|row| !row.is_right()).count();
        if args.once {
            drop(running);
            return if wrong == 0 { Ok(()) } else { Err(wrong_replies(&rows, wrong)) };
        }
        if wrong > 0 {
            eprintln!("switchboard: {}", wrong_replies(&rows, wrong));
        }
        if !args.json {
            print(&hints::commands(&address, nats))?;
        }
        serving::until_stopped(running, stop, |_| ()).await;
        Ok(())
    })
}

/// Returns the `HOST:PORT` at which the server accepts plaintext; callers on this machine reach a wildcard address on
/// the loopback interface.
fn dialable(addresses: &[Address]) -> Result<String, String> {
    let plain = addresses.iter().find_map(|address| match address {
        Address::Tcp(host, port) => Some((host, port)),
        _ => None,
    });
    let Some((host, port)) = plain else {
        return Err("the demo needs HOST:PORT to listen at: callers dial it".to_owned());
    };
    Ok(match host.as_str() {
        "0.0.0.0" => format!("127.0.0.1:{port}"),
        "::" => format!("[::1]:{port}"),
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    })
}

fn wrong_replies(rows: &[Row], wrong: usize) -> String {
    let mut text = format!("{wrong} of {} answers are wrong:", rows.len());
    for row in rows.iter().filter(|row| !row.is_right()) {
        text.push_str(&format!("\n  {row}"));
    }
    text
}
