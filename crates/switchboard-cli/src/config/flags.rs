//! Commands whose flags are settings: values of all sources are parsed as their flags are.

use super::Config;
use clap::{
    Command, FromArgMatches,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use std::ffi::OsString;

/// Applies the flags of a command line, which begins with the name of the command.
///
/// # Errors
/// An invalid value.
pub(crate) fn override_with(
    config: &mut Config,
    flags: &Command,
    own: impl Iterator<Item = OsString>,
) -> Result<(), String> {
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

/// Returns the flags for these settings, except the limits.
///
/// # Errors
/// An invalid value, or one that conflicts with another.
pub(crate) fn parsed<T: FromArgMatches>(config: &Config, flags: Command) -> Result<T, String> {
    let all = std::iter::once(flags.get_name().to_owned()).chain(config.as_flags());
    let matches = flags.try_get_matches_from(all);
    let args = matches.and_then(|matches| T::from_arg_matches(&matches));
    args.map_err(|error| match named(&error, config) {
        Some(name) => config.config_error(&name, &said(&error)),
        None => said(&error),
    })
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
