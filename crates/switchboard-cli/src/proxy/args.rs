//! The command line of `switchboard proxy`.

use super::tap::TapArgs;
use crate::{
    call::{SchemaArgs, metadata},
    log::Level,
    serve::{address, microseconds, setting, time},
    tls::TlsArgs,
};
use bytes::Bytes;
use clap::{Args, value_parser};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  switchboard proxy --to 127.0.0.1:9090?wire=grpc
  switchboard proxy --listen 0.0.0.0:8080 --to 10.0.0.1:8972?wire=rpcx --tap
  switchboard proxy --to 10.0.0.1:8002,10.0.0.2:8002?wire=baidu_std&retries=1 \\
      --proto echo.proto
  switchboard proxy --to etcd://10.0.0.1:2379/fleet --service demo.v1.Greeter \\
      --reflect --tap calls.jsonl --tap-filter 'demo.*' --tap-filter status=error

Callers speak any wire. What goes through a & on a shell needs quotes.";

/// `switchboard proxy`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArgs {
    /// Take settings from this TOML file, where flags are keys as in to = ["10.0.0.1:9090"], and from variables like
    /// SWITCHBOARD_PROXY_TO; flags override both. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Listen at ADDRESS: HOST:PORT or unix:/PATH; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:8080")]
    pub(super) listen: Vec<String>,
    /// Forward calls to URL: HOST:PORT, tcp://, tls:// or unix:/PATH, several with commas between, with options of a
    /// channel as in 10.0.0.1:9090?wire=grpc&timeout=1s: the wire (native unless set), balance=, fail=, retries=,
    /// breaker=, hedge=. Or a registry: switchboard://HOST:PORT, etcd://, consul:// or file:PATH. Several servers share
    /// the calls
    #[arg(long, value_name = "URL")]
    pub(super) to: Vec<String>,
    /// Forward only calls of these services. A registry is queried for them, and for those of the schema. May be given
    /// several times [default: those of the schema, and all others except with a registry]
    #[arg(long, value_name = "NAME")]
    pub(super) service: Vec<String>,
    /// Add metadata to every forwarded call, in place of the caller's value under the name. May be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = metadata::parse)]
    pub(super) headers: Vec<(String, Bytes)>,

    /// Handle calls of function NUMBER on kiss-rpc as those of METHOD, as in book.v1.AddressBook/Find:7; the numbers of
    /// its servers are set in URL. May be given several times
    #[arg(long, value_name = "METHOD:NUMBER", value_parser = function)]
    pub(super) function: Vec<NumberedMethod>,

    #[command(flatten)]
    pub(super) schema: SchemaArgs,
    /// Query an upstream server for the schema, by gRPC reflection on its port, before the proxy serves
    #[arg(long, help_heading = "Schema", conflicts_with_all = ["proto", "descriptor_set"])]
    pub(super) reflect: bool,
    /// Refuse methods that the schema does not have
    #[arg(long, help_heading = "Schema")]
    pub(super) known_only: bool,

    #[command(flatten)]
    pub(super) tap: TapArgs,

    #[command(flatten)]
    pub(super) tls: TlsArgs,

    /// Set a limit of the listeners, as in message_bytes_max=8MiB; `serve --print-limits` shows all. May be given
    /// several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, help_heading = "Limits")]
    pub(super) limit: Vec<String>,
    /// Run at most this many calls at once; further ones are refused with the time after which to retry
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(super) concurrency: Option<u32>,
    /// Accept at most this many calls per second from each peer; further ones are refused
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(super) rate: Option<u32>,
    /// End calls after TIME, even if their callers allow more, as in 30s
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Limits")]
    pub(super) deadline_max: Option<String>,

    /// Show the state of the proxy at ADDRESS, as in 127.0.0.1:9090 or unix:/PATH, which must be of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = address, help_heading = "Running")]
    pub(super) admin: Option<String>,
    /// Log one call in N [default: none]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=1_000_000), help_heading = "Running")]
    pub(super) access_log: Option<u32>,
    /// Log calls that take at least TIME, as in 200ms [default: none]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Running")]
    pub(super) slow_call: Option<String>,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024), help_heading = "Running")]
    pub(super) workers: Option<u16>,
    /// Microseconds that a thread polls on after traffic before it sleeps; 0 sleeps at once
    #[arg(long, value_name = "N", value_parser = microseconds(), default_value = "100", help_heading = "Running")]
    pub(super) spin_us: u32,
    /// Log events of this level and above on standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info", help_heading = "Running")]
    pub(super) log: Level,
}

/// A method, and its number on kiss-rpc.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NumberedMethod {
    pub(super) method: String,
    pub(super) number: u64,
}

fn function(text: &str) -> Result<NumberedMethod, String> {
    let read = || {
        let (method, number) = text.rsplit_once(':')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        method.contains('/').then(|| NumberedMethod { method: method.to_owned(), number })
    };
    read().ok_or_else(|| {
        "expected package.Service/Method:NUMBER, where the number is decimal and not 0".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_a_method_and_a_number() {
        let found = NumberedMethod { method: "a.B/C".to_owned(), number: 7 };
        assert_eq!(function("a.B/C:7"), Ok(found));
        for wrong in ["a.B/C", "a.B/C:0", "a.B/C:-1", "a.B:7", ":7"] {
            assert!(function(wrong).is_err(), "{wrong}");
        }
    }
}
