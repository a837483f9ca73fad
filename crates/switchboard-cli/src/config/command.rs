//! `switchboard config`: the settings of `serve` or `proxy`, checked, explained, and as a file to begin with.

use super::{Config, Key, Reload, Root, all};
use crate::{proxy::ProxyArgs, serving::print};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `switchboard config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Of `proxy`, not of `serve`.
    #[arg(long, global = true)]
    proxy: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Read FILE and the environment as `--config FILE` would, and say whether all is well.
    Check { file: PathBuf },
    /// Print a file with every setting, its default and what it means.
    Default,
    /// Print every setting as it would be in force, and who set it.
    Explain { file: Option<PathBuf> },
}

/// # Errors
/// The first mistake in the file or the environment.
pub(crate) fn run(args: ConfigArgs) -> Result<(), String> {
    let root = if args.proxy { Root::Proxy } else { Root::Serve };
    match args.action {
        Action::Check { file } => {
            let config = Config::load(root, Some(&file))?;
            config.tls()?;
            config.limits()?;
            if args.proxy {
                ProxyArgs::of(&config)?;
            }
            print(&format!("{}: all is well\n", file.display()))
        }
        Action::Default => print(&default(root)),
        Action::Explain { file } => print(&Config::load(root, file.as_deref())?.explain()),
    }
}

/// A file in which every setting is a comment.
fn default(root: Root) -> String {
    let (command, prefix) = (root.command(), root.prefix());
    let mut text = format!(
        "# Settings of `switchboard {command} --config FILE`. Flags overrule the environment\n\
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

/// What is said of settings that need no start.
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
