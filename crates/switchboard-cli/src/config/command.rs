//! `switchboard config`: checks and explains the settings of `serve`, `proxy` or `push serve`, and prints them as a
//! template file.

use super::{Config, Key, Reload, Root, all};
use crate::{proxy::ProxyArgs, push::GatewayArgs, serving::print};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `switchboard config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Use the settings of `proxy` instead of those of `serve`.
    #[arg(long, global = true, conflicts_with = "push")]
    proxy: bool,
    /// Use the settings of `push serve` instead of those of `serve`.
    #[arg(long, global = true)]
    push: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Read FILE and the environment as `--config FILE` would, and report their errors.
    Check { file: PathBuf },
    /// Print a file with every setting, its default and its meaning.
    Default,
    /// Print the value of every setting that would be in effect, and its source.
    Explain { file: Option<PathBuf> },
}

/// # Errors
/// All errors of the file or the environment.
pub(crate) fn run(args: ConfigArgs) -> Result<(), String> {
    let root = match (args.proxy, args.push) {
        (true, _) => Root::Proxy,
        (false, true) => Root::Push,
        (false, false) => Root::Serve,
    };
    match args.action {
        Action::Check { file } => {
            let (config, mut errors) = Config::load_all(root, Some(&file));
            if let Err(why) = config.tls() {
                let line =
                    ["tls.cert", "tls.key", "tls.client_ca"].iter().find_map(|name| config.line_of(name));
                errors.add(line, why);
            }
            if let Err(why) = config.limits() {
                errors.add(None, why);
            }
            // Limits are read together; single ones are checked by now.
            errors.finish()?;
            match root {
                Root::Proxy => drop(ProxyArgs::of(&config)?),
                Root::Push => drop(GatewayArgs::of(&config)?.gateway()?),
                Root::Serve => {}
            }
            print(&format!("{}: no errors\n", file.display()))
        }
        Action::Default => print(&default(root)),
        Action::Explain { file } => print(&Config::load(root, file.as_deref())?.explain()),
    }
}

/// Returns a file in which every setting is a comment.
fn default(root: Root) -> String {
    let (command, prefix) = (root.command(), root.prefix());
    let mut text = format!(
        "# Settings of `switchboard {command} --config FILE`. Flags override the environment\n\
         # ({prefix}LISTEN, {prefix}LIMITS_CALLS_MAX), and that overrules this file.\n"
    );
    let mut table = "";
    let keys = all(root);
    for key in &keys {
        let (of, name) = key.name.split_once('.').unwrap_or(("", &key.name));
        if of != table {
            text.push_str(&format!("\n[{of}]\n"));
            table = of;
        }
        text.push_str(&format!("\n# {}{}\n# {name} = {}\n", key.doc, marked(key), literal(key)));
    }
    text
}

/// Marks settings that change without a restart.
fn marked(key: &Key) -> &'static str {
    if key.reload == Reload::Never { "" } else { " (reloaded with SIGHUP)" }
}

fn literal(key: &Key) -> String {
    let text = key.default.as_ref().unwrap_or(&key.example);
    let text = if key.kind.is_quoted() { format!("{text:?}") } else { text.clone() };
    if key.kind.is_list() { format!("[{text}]") } else { text }
}

impl Config {
    fn explain(&self) -> String {
        let mut lines = String::new();
        for (key, given) in self.keys.iter().zip(&self.given) {
            let (value, source) = match given {
                Some(given) => (given.texts.join(", "), given.source.to_string()),
                None => (key.default.clone().unwrap_or_else(|| "-".to_owned()), "default".to_owned()),
            };
            let (name, doc, marked) = (&key.name, &key.doc, marked(key));
            lines.push_str(&format!("{name:<28} {value:<20} {source:<12} {doc}{marked}\n"));
        }
        lines
    }
}
