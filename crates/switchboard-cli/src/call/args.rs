//! The command line of `switchboard call`.

use super::{bytes::Digits, invoke::RawKind, metadata, schema::SchemaArgs, wire::Wire};
use bytes::Bytes;
use clap::Args;
use std::time::Duration;
use switchboard::{Limits, limits::Source};

const EXAMPLES: &str = "\
Examples:
  switchboard call localhost:8080 list
  switchboard call localhost:8080 describe demo.v1.Greeter
  switchboard call localhost:8080 demo.v1.Greeter/Greet -d '{\"name\": \"Ada\"}'
  switchboard call localhost:8080 Greeter/Sum -d '{\"value\": 1}{\"value\": 2}'
  switchboard call localhost:8080 demo.v1.Greeter/Chat      # types, and reads
  switchboard call localhost:8080 demo.v1.Greeter/Greet -d @ada.json \\
      --wire connect -H 'authorization: Bearer x' --timeout 2s
  switchboard call localhost:8080 demo.v1.Greeter/Greet -d '{\"name\": \"Ada\"}' \\
      --proto demo.proto -I proto
  switchboard call 'localhost:8972?names=short' --wire rpcx Arith/Mul \\
      --raw unary -d '{\"A\": 6, \"B\": 7}'
  switchboard call 'localhost:9090?framed=false' Calculator/add \\
      --thrift tutorial.thrift -d '{\"num1\": 1, \"num2\": 2}'
  switchboard call localhost:8080 book.v1.AddressBook/Find \\
      --fbs address_book.fbs -d '{\"name\": \"Ada\"}'

Exit codes: 0 when the call ended well, 64 plus the number of the status when
not (69 for not_found), 2 for usage errors, 1 when the output
cannot be written.";

/// `switchboard call`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CallArgs {
    /// Server: HOST:PORT, tcp://, http://, tls://, ws://, wss:// or unix:/PATH; with options of a channel as in
    /// localhost:8080?wire=connect&http=1. Or a registry: switchboard://HOST:PORT, etcd://, consul:// or file:PATH
    pub(super) url: String,
    /// Method to call, as in pkg.Service/Method; or `list`, or `describe`
    #[arg(value_name = "METHOD|list|describe")]
    pub(super) verb: String,
    /// Name to list (a service) or describe (a service, method, message or enum)
    pub(super) name: Option<String>,
    /// Requests as JSON, @FILE to read them from a file, - for standard input. Several are written one after the other.
    /// Without it, standard input is read if it is not a terminal or the method takes a stream
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true)]
    pub(super) data: Option<String>,
    /// Protocol of the call [default: grpc, native in a WebSocket, thrift with --thrift, or what
    /// the URL says]
    #[arg(long, value_name = "WIRE", value_enum)]
    pub(super) wire: Option<Wire>,
    /// Metadata to send; values of names that end in -bin are base64. May be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = metadata::parse)]
    pub(super) headers: Vec<(String, Bytes)>,
    /// Send the request without waiting for a reply
    #[arg(long)]
    pub(super) oneway: bool,
    /// End the command after this time, as in 5s or 300ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    /// Largest message to accept, as in 16MiB [default: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = message_size)]
    pub(super) max_message_size: Option<String>,

    #[command(flatten)]
    pub(super) schema: SchemaArgs,
    /// Send and print JSON as it is, for servers whose schema is not available; KIND is that of the method
    #[arg(long, value_name = "KIND", value_enum, help_heading = "Schema")]
    #[arg(conflicts_with_all = ["sources", "descriptor_set"])]
    pub(super) raw: Option<RawKind>,
    /// With --raw: requests are bytes, written in this form in -d, or a whole file unchanged; replies are printed in
    /// this form. Uses the codec of the URL, else FlatBuffers for --wire kiss and protobuf elsewhere
    #[arg(long, value_name = "DIGITS", value_enum, help_heading = "Schema", requires = "raw")]
    pub(super) bytes: Option<Digits>,

    /// Certificates to trust, in a PEM file
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(super) ca: Option<String>,
    /// Certificate to send, in a PEM file
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key")]
    pub(super) cert: Option<String>,
    /// Key of that certificate, in a PEM file
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "cert")]
    pub(super) key: Option<String>,
    /// Name that the server's certificate must have
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(super) server_name: Option<String>,

    /// Print each message on one line
    #[arg(long, help_heading = "Output")]
    pub(super) compact: bool,
    /// Print fields that have their default values too
    #[arg(long, help_heading = "Output")]
    pub(super) emit_defaults: bool,
    /// Print how long each part took, on standard error
    #[arg(long, help_heading = "Output")]
    pub(super) timings: bool,
    /// Print how the server of the call was selected: which servers were available, why others were not, and the result
    /// of each attempt; on standard error
    #[arg(long, help_heading = "Output")]
    pub(super) explain: bool,
    /// Print metadata and trailers of the reply on standard error; with `list`, what methods
    /// take and return
    #[arg(short, long, help_heading = "Output")]
    pub(super) verbose: bool,
    /// Print one object: messages, status, metadata, trailers and timings
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
}

/// `5s`, `300ms`, `1.5s`, `2min`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    // At most a year, because clocks overflow.
    let range = Duration::from_nanos(1)..=Duration::from_secs(365 * 86_400);
    let time = Limits::parse_time(text).ok().filter(|time| range.contains(time));
    time.ok_or_else(|| "expected a number with ms, s, min or h, as in 5s".to_owned())
}

/// A value of the limit `message_bytes_max`, checked.
fn message_size(text: &str) -> Result<String, String> {
    let checked = Limits::default().parse(&format!("message_bytes_max={text}"), Source::Flag);
    checked.map(|()| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["5", "s", "-1s", "0s", "NaNs", "1e400s", "1e12s", "366days"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
