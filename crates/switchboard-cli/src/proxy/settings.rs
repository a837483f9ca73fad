//! The settings of `switchboard proxy`: its flags, which `switchboard config` handles together with those of `serve`.

use super::ProxyArgs;
use crate::config::{Config, Root};
use clap::{
    Args, Command, FromArgMatches,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use std::ffi::OsString;

impl ProxyArgs {
    /// Returns all flags.
    pub(crate) fn flags() -> Command {
        ProxyArgs::augment_args(Command::new("proxy"))
    }

    /// Returns the settings of the file and the environment, overridden by the flags of this process.
    ///
    /// # Errors
    /// The first error, and its position.
    pub(super) fn config(&self) -> Result<Config, String> {
        let mut config = Config::load(Root::Proxy, self.config.as_deref())?;
        config.limit_flags(&self.limit)?;
        // The name of the program is skipped; the name of the command takes its place.
        override_with(&mut config, std::env::args_os().skip(1))?;
        ProxyArgs::of(&config).map(|_| config)
    }

    /// Returns the flags for these settings, except the limits.
    ///
    /// # Errors
    /// An invalid value, or one that conflicts with another.
    pub(crate) fn of(config: &Config) -> Result<ProxyArgs, String> {
        let all = std::iter::once("proxy".to_owned()).chain(config.as_flags());
        let matches = ProxyArgs::flags().try_get_matches_from(all);
        let args = matches.and_then(|matches| ProxyArgs::from_arg_matches(&matches));
        args.map_err(|error| match named(&error, config) {
            Some(name) => config.config_error(&name, &said(&error)),
            None => said(&error),
        })
    }
}

/// Applies the flags of a command line.
fn override_with(config: &mut Config, own: impl Iterator<Item = OsString>) -> Result<(), String> {
    let flags = ProxyArgs::flags();
    let matches = flags.clone().try_get_matches_from(own).map_err(|error| said(&error))?;
    for flag in flags.get_arguments() {
        let id = flag.get_id().as_str();
        let Some(name) = flag.get_long().and_then(|long| config.name_of_flag(long)) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let texts = matches.get_raw(id).into_iter().flatten();
        let texts: Option<Vec<_>> = texts.map(|text| text.to_str().map(str::to_owned)).collect();
        config.flag(&name, texts.ok_or_else(|| format!("{name}: its value is not UTF-8"))?)?;
    }
    Ok(())
}

/// Formats an error in one line.
fn said(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    match error.get(ContextKind::InvalidArg) {
        // They are in the lines below.
        Some(ContextValue::Strings(missing)) if text.ends_with(':') => {
            format!("{text} {}", missing.join(", "))
        }
        _ => text,
    }
}

/// Returns the setting that an error is about.
fn named(error: &clap::Error, config: &Config) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    config.name_of_flag(flag.trim_start_matches('-').split([' ', '=']).next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_and_are_checked_as_on_a_command_line() {
        let mut config = Config::load(Root::Proxy, None).unwrap();
        config.flag("to", ["a:1".to_owned(), "b:1".to_owned()]).unwrap();
        config.flag("deadline_max", ["30s".to_owned()]).unwrap();
        let own =
            ["proxy", "--to", "c:1", "-H", "x: y", "--reflect", "--tap", "--tls-cert=c.pem", "--tls-key=k"];
        override_with(&mut config, own.iter().map(OsString::from)).unwrap();
        let args = ProxyArgs::of(&config).unwrap();
        assert_eq!((&args.to[..], args.deadline_max.as_deref()), (&["c:1".to_owned()][..], Some("30s")));
        assert!(args.reflect && !args.known_only && args.headers.len() == 1 && args.tls.settings().is_some());

        config.flag("tap_filter", ["status=odd".to_owned()]).unwrap();
        let wrong = ProxyArgs::of(&config).unwrap_err();
        assert!(wrong.contains("--tap-filter"), "{wrong}");
    }
}
