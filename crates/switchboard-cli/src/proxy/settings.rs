//! The settings of `switchboard proxy` from all their sources: a TOML file, the environment, flags; each overrules
//! those before it.
//!
//! Every flag is a setting. `--deadline-max 30s` is `deadline-max = "30s"` in the file, and
//! `SWITCHBOARD_PROXY_DEADLINE_MAX=30s` in the environment, where lists have commas between their values.

use super::ProxyArgs;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

/// Variables of the environment begin so.
const PREFIX: &str = "SWITCHBOARD_PROXY_";

/// The settings of a file and of the environment, by the flags that they are.
#[derive(Debug)]
struct Settings {
    flags: Command,
    given: BTreeMap<String, Vec<String>>,
}

impl ProxyArgs {
    /// These flags, with what they leave open from the file that they name and from the environment.
    ///
    /// # Errors
    /// The first mistake, and where it is.
    pub(super) fn completed(self) -> Result<ProxyArgs, String> {
        let mut settings = Settings::new();
        if let Some(path) = &self.config {
            settings.file(path).map_err(|why| format!("{}: {why}", path.display()))?;
        }
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        settings.environment(variables)?;
        if settings.given.is_empty() {
            return Ok(self);
        }
        // Behind the name of the program, that of the command stands in its place.
        settings.below(std::env::args_os().skip(1).collect())
    }
}

impl Settings {
    fn new() -> Settings {
        Settings { flags: ProxyArgs::augment_args(Command::new("proxy")), given: BTreeMap::new() }
    }

    fn file(&mut self, path: &Path) -> Result<(), String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        for (key, value) in table {
            let values = match value {
                toml::Value::Array(values) => values.iter().map(text_of).collect(),
                value => text_of(&value).map(|text| vec![text]),
            };
            self.set(
                &key,
                values.ok_or_else(|| format!("{key}: expected a text, a number, or a list of them"))?,
            )?;
        }
        Ok(())
    }

    fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result<(), String> {
        for (variable, value) in variables {
            let Some(name) = variable.strip_prefix(PREFIX) else { continue };
            let name = name.to_lowercase();
            let values = match self.flag(&name).map_err(|why| format!("{variable}: {why}"))?.get_action() {
                ArgAction::Append => value.split(',').map(|value| value.trim().to_owned()).collect(),
                _ => vec![value],
            };
            self.set(&name, values)?;
        }
        Ok(())
    }

    /// What is set later overrules.
    fn set(&mut self, name: &str, values: Vec<String>) -> Result<(), String> {
        let flag = self.flag(name)?;
        let long = flag.get_long().unwrap_or_default().to_owned();
        let values = match flag.get_action() {
            ArgAction::SetTrue => match &values[..] {
                [on] if on == "true" => values,
                [off] if off == "false" => Vec::new(),
                _ => return Err(format!("{name}: expected true or false")),
            },
            _ => values,
        };
        self.given.insert(long, values);
        Ok(())
    }

    fn flag(&self, name: &str) -> Result<&Arg, String> {
        let long = name.replace('_', "-");
        let known = self.flags.get_arguments().find(|flag| flag.get_long() == Some(&*long));
        known
            .filter(|flag| flag.get_id() != "config")
            .ok_or_else(|| format!("there is no setting {name:?}; `switchboard proxy --help` shows all"))
    }

    /// The flags of a command line, and these settings where it has none.
    fn below(self, own: Vec<OsString>) -> Result<ProxyArgs, String> {
        let said = |error: clap::Error| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        };
        let flagged = self.flags.clone().ignore_errors(true).try_get_matches_from(&own).map_err(said)?;
        let mut all = own;
        for (long, values) in self.given {
            let flag = self.flags.get_arguments().find(|flag| flag.get_long() == Some(&*long));
            let Some(flag) = flag.filter(|flag| !is_flagged(&flagged, flag)) else { continue };
            let is_switch = matches!(flag.get_action(), ArgAction::SetTrue);
            all.extend(values.into_iter().map(|value| match is_switch {
                true => format!("--{long}").into(),
                false => format!("--{long}={value}").into(),
            }));
        }
        let matches = self.flags.try_get_matches_from(all).map_err(said)?;
        ProxyArgs::from_arg_matches(&matches).map_err(said)
    }
}

fn is_flagged(flagged: &ArgMatches, flag: &Arg) -> bool {
    flagged.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings::new();
        settings.environment(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))?;
        Ok(settings)
    }

    fn below(settings: Settings, own: &[&str]) -> Result<ProxyArgs, String> {
        settings.below(["proxy"].iter().chain(own).map(OsString::from).collect())
    }

    #[test]
    fn flags_overrule_the_environment() {
        let variables = [
            ("SWITCHBOARD_PROXY_TO", "a:1, b:1"),
            ("SWITCHBOARD_PROXY_DEADLINE_MAX", "30s"),
            ("SWITCHBOARD_PROXY_KNOWN_ONLY", "true"),
            ("SWITCHBOARD_PROXY_REFLECT", "false"),
            ("SWITCHBOARD_SERVE_LISTEN", "of another command"),
        ];
        let args = below(environment(&variables).unwrap(), &["--to", "c:1"]).unwrap();
        assert_eq!((&args.to[..], args.deadline_max.as_deref()), (&["c:1".to_owned()][..], Some("30s")));
        assert!(args.known_only && !args.reflect);
        let args = below(environment(&variables).unwrap(), &[]).unwrap();
        assert_eq!(args.to, ["a:1", "b:1"]);
    }

    #[test]
    fn mistakes_name_what_is_wrong() {
        let wrong = environment(&[("SWITCHBOARD_PROXY_TOO", "a:1")]).unwrap_err();
        assert!(wrong.starts_with("SWITCHBOARD_PROXY_TOO: there is no setting \"too\""), "{wrong}");
        let wrong = environment(&[("SWITCHBOARD_PROXY_REFLECT", "yes")]).unwrap_err();
        assert!(wrong.contains("expected true or false"), "{wrong}");
        let wrong = below(environment(&[("SWITCHBOARD_PROXY_RATE", "many")]).unwrap(), &[]).unwrap_err();
        assert!(wrong.contains("--rate"), "{wrong}");
    }
}
