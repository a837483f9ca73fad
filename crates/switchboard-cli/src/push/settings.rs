//! The settings of `switchboard push serve`: its flags, which `switchboard config --push` handles too.

use super::{
    gateway::{Gateway, Keys},
    rooms::{self, RoomClass},
};
use crate::{
    config::{Config, Root, flags},
    log::Level,
    serve::{address, microseconds, setting},
    tls::TlsArgs,
};
use clap::{Args, Command, value_parser};
use std::{fs, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  switchboard push serve --open
  switchboard push serve --listen 0.0.0.0:8080 --hs256-key-file jwt.key \\
      --api-token-file api.token --room 'live/* history=100 age=5min presence'
  switchboard config default --push > push.toml

Rooms: a pattern, then settings with spaces between them: history=N, age=TIME,
bytes=N, merge=TIME, conflate, presence, join=WHO, publish=WHO, list=WHO,
members=N, entry_bytes=N, rate=N; WHO is all, none, token, members or
roles:NAME+NAME. The first pattern that matches a room applies.";

/// `switchboard push serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatewayArgs {
    /// Take settings from this TOML file, where flags are keys as in room = ["live/* history=100"], and from variables
    /// like SWITCHBOARD_PUSH_LISTEN; flags override both. See `switchboard config --push`
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Listen at ADDRESS: HOST:PORT or unix:/PATH; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:8080")]
    pub(super) listen: Vec<String>,
    /// Listen at ADDRESS for devices with goim, and for no calls; the other listeners detect goim. May be given several
    /// times
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(super) goim_listen: Vec<String>,

    /// Accept every device as the user and key that it names, every caller of the API without a token, and clients of
    /// MQTT: for tests, and networks that only trusted programs reach
    #[arg(long, help_heading = "Access", conflicts_with_all = ["hs256_key_file", "jwks_file"])]
    pub(super) open: bool,
    /// Accept devices with JSON Web Tokens that are signed with the secret in this file, of at least 32 bytes; a line
    /// end at its end is ignored
    #[arg(long, value_name = "FILE", help_heading = "Access", conflicts_with = "jwks_file")]
    pub(super) hs256_key_file: Option<PathBuf>,
    /// Accept devices with JSON Web Tokens that are signed with a key of the key set in this file
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub(super) jwks_file: Option<PathBuf>,
    /// Serve the API to push, switchboard.push.v1.Push and the paths of goim, to callers with the token in this file
    /// [default: to all callers with --open, else to none]
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub(super) api_token_file: Option<PathBuf>,
    /// Serve clients of MQTT: with a token as the password they subscribe to room/NAME, and publish with the role push.
    /// Rights of rooms do not apply to them [default: with --open]
    #[arg(long, help_heading = "Access")]
    pub(super) mqtt: bool,
    /// A host name under which browsers reach the server, as in app.example, against DNS rebinding; addresses and
    /// localhost always pass. May be given several times
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    pub(super) host: Vec<String>,
    /// Let web pages of ORIGIN open WebSockets, as in `https://app.example`, or all with *. May be given several times
    #[arg(long, value_name = "ORIGIN", help_heading = "Access")]
    pub(super) websocket_origin: Vec<String>,

    /// Settings of the rooms of a pattern, as in 'live/* history=100 presence'. May be given several times
    #[arg(long, value_name = "ROOMS", value_parser = rooms::check, default_value = "> history=100 age=5min presence")]
    pub(super) room: Vec<String>,

    #[command(flatten)]
    pub(super) tls: TlsArgs,

    /// Set a limit of the listeners, as in message_bytes_max=8MiB; `serve --print-limits` shows all. May be given
    /// several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(super) limit: Vec<String>,
    /// Show the state of the gateway at ADDRESS, as in 127.0.0.1:9090 or unix:/PATH, which must be of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(super) admin: Option<String>,
    /// Threads that serve [default: one for each core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    pub(super) workers: Option<u16>,
    /// Microseconds that a thread polls on after traffic before it sleeps; 0 sleeps at once
    #[arg(long, value_name = "N", value_parser = microseconds(), default_value = "100")]
    pub(super) spin_us: u32,
    /// Log events of this level and above on standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub(super) log: Level,
}

impl GatewayArgs {
    /// Returns all flags.
    pub(crate) fn flags() -> Command {
        GatewayArgs::augment_args(Command::new("serve"))
    }

    /// Returns the settings of the file and the environment, overridden by the flags of this process.
    ///
    /// # Errors
    /// The first error, and its position.
    pub(super) fn settings(&self) -> Result<Config, String> {
        let mut config = Config::load(Root::Push, self.config.as_deref())?;
        config.limit_flags(&self.limit)?;
        // The name of the program and `push` are skipped; the name of the command takes their place.
        flags::override_with(&mut config, &GatewayArgs::flags(), std::env::args_os().skip(2))?;
        GatewayArgs::of(&config).map(|_| config)
    }

    /// Returns the flags for these settings, except the limits.
    ///
    /// # Errors
    /// An invalid value, or one that conflicts with another.
    pub(crate) fn of(config: &Config) -> Result<GatewayArgs, String> {
        flags::parsed(config, GatewayArgs::flags())
    }

    /// Reads the files with keys and tokens, and returns the gateway.
    ///
    /// # Errors
    /// A file that cannot be read or has no valid key, an empty token, and a gateway that would refuse every device.
    pub(crate) fn gateway(&self) -> Result<Gateway, String> {
        let keys = match (self.open, &self.hs256_key_file, &self.jwks_file) {
            (true, ..) => Keys::Open,
            (false, Some(path), _) => Keys::Secret(secret(path)?),
            (false, None, Some(path)) => Keys::Set(path.clone()),
            (false, None, None) => {
                let text = "a push gateway needs to know its devices: set --hs256-key-file or --jwks-file for their \
                            tokens, or --open to accept every device";
                return Err(text.to_owned());
            }
        };
        keys.check()?;
        let rooms = self.room.iter().map(|text| RoomClass::parse(text)).collect::<Result<_, _>>()?;
        let api_token = self.api_token_file.as_ref().map(secret).transpose()?;
        Ok(Gateway { keys, api_token, has_mqtt: self.mqtt || self.open, rooms })
    }
}

/// Reads a secret from a file, without the line end that editors add.
fn secret(path: &PathBuf) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{}: the file has no secret", path.display()));
    }
    Ok(text.to_owned())
}
