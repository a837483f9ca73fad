//! The settings of `switchboard serve`, `proxy` and `push serve` from all their sources: defaults, a TOML file, the
//! environment, flags; each overrides those before it. An unknown key is an error, which suggests the nearest key that
//! exists.

mod command;
mod file;
pub(crate) mod flags;
mod keys;
mod reload;

pub(crate) use command::{ConfigArgs, run};
use keys::{Key, Kind, Reload, all};
pub(crate) use reload::Prepared;
use std::{fmt, path::Path, time::Duration};
use switchboard::{Limits, Tls, limits};

/// Names that are less similar are not suggested.
const ALIKE: f64 = 0.75;

/// The command to which settings belong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Root {
    Proxy,
    Push,
    Serve,
}

impl Root {
    fn command(self) -> &'static str {
        match self {
            Root::Proxy => "proxy",
            Root::Push => "push serve",
            Root::Serve => "serve",
        }
    }

    /// Prefix of environment variables: `SWITCHBOARD_SERVE_LIMITS_CALLS_MAX`, `SWITCHBOARD_PROXY_LISTEN`.
    fn prefix(self) -> &'static str {
        match self {
            Root::Proxy => "SWITCHBOARD_PROXY_",
            Root::Push => "SWITCHBOARD_PUSH_",
            Root::Serve => "SWITCHBOARD_SERVE_",
        }
    }

    /// The command that shows all settings.
    fn shown_by(self) -> &'static str {
        match self {
            Root::Proxy => "switchboard config default --proxy",
            Root::Push => "switchboard config default --push",
            Root::Serve => "switchboard config default",
        }
    }
}

/// Every setting, and the source of its value.
#[derive(Debug)]
pub(crate) struct Config {
    root: Root,
    keys: Vec<Key>,
    given: Vec<Option<Given>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Given {
    /// One text, or several for a list.
    texts: Vec<String>,
    source: Source,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    Environment(String),
    /// Path of the file, and the line.
    File(String, usize),
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Environment(name) => f.write_str(name),
            Source::File(path, line) => write!(f, "{path}:{line}"),
            Source::Flag => f.write_str("flag"),
        }
    }
}

impl Config {
    /// Reads the file, if there is one, and the environment of this process.
    ///
    /// # Errors
    /// All errors, one per line, with their positions.
    pub(crate) fn load(root: Root, file: Option<&Path>) -> Result<Config, String> {
        let (config, errors) = Config::load_all(root, file);
        errors.finish().map(|()| config)
    }

    /// Reads the file and the environment, and returns their errors separately.
    fn load_all(root: Root, file: Option<&Path>) -> (Config, Errors) {
        let (mut config, mut errors) = (Config::new(root), Errors::default());
        if let Some(path) = file {
            config.read_file(path, &mut errors);
        }
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        config.environment(variables, &mut errors);
        (config, errors)
    }

    /// Creates settings without any value.
    fn new(root: Root) -> Config {
        let keys = all(root);
        Config { root, given: keys.iter().map(|_| None).collect(), keys }
    }

    fn is_table(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
    }

    fn environment(&mut self, variables: impl Iterator<Item = (String, String)>, errors: &mut Errors) {
        let prefix = self.root.prefix();
        let mut own: Vec<_> = variables.filter(|(name, _)| name.starts_with(prefix)).collect();
        own.sort_unstable();
        for (variable, value) in own {
            let name = variable[prefix.len()..].to_lowercase();
            let known = self.keys.iter().find(|key| key.name.replace('.', "_") == name);
            let (name, texts) = match known {
                Some(key) => (key.name.clone(), key.kind.split(value)),
                None => (name, vec![value]),
            };
            let set = self.set(&name, texts, Source::Environment(variable.clone()));
            if let Err(why) = set {
                errors.add(None, format!("{variable}: {why}"));
            }
        }
    }

    /// Sets the value of a flag; does nothing if the flag is absent.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn flag(&mut self, name: &str, texts: impl IntoIterator<Item = String>) -> Result<(), String> {
        let texts: Vec<_> = texts.into_iter().collect();
        if texts.is_empty() { Ok(()) } else { self.set(name, texts, Source::Flag) }
    }

    /// Sets limits of flags in the form `NAME=VALUE`.
    ///
    /// # Errors
    /// An unknown limit, and an invalid value.
    pub(crate) fn limit_flags<'a>(
        &mut self,
        settings: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), String> {
        for setting in settings {
            let (name, value) = setting.split_once('=').ok_or("a limit is NAME=VALUE")?;
            self.flag(&format!("limits.{name}"), [value.to_owned()])?;
        }
        Ok(())
    }

    /// Returns the name of the setting that `--LONG` sets, if it has one.
    pub(crate) fn name_of_flag(&self, long: &str) -> Option<String> {
        let key = self.keys.iter().find(|key| key.flag() == long && !matches!(key.kind, Kind::Limit(_)));
        key.map(|key| key.name.clone())
    }

    /// Returns the given settings, except limits, as flags.
    pub(crate) fn as_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        for (key, given) in self.keys.iter().zip(&self.given) {
            let texts = given.iter().flat_map(|given| &given.texts);
            match key.kind {
                Kind::Limit(_) => {}
                Kind::Switch => {
                    flags.extend(texts.filter(|on| *on == "true").map(|_| format!("--{}", key.flag())));
                }
                _ => flags.extend(texts.map(|text| format!("--{}={text}", key.flag()))),
            }
        }
        flags
    }

    fn set(&mut self, name: &str, texts: Vec<String>, source: Source) -> Result<(), String> {
        let Some(at) = self.keys.iter().position(|key| key.name == name) else {
            return Err(self.unknown(name));
        };
        let key = &self.keys[at];
        if !key.kind.is_list() && texts.len() != 1 {
            return Err(format!("{name}: expected one value, not a list"));
        }
        for text in &texts {
            key.kind.check(text).map_err(|why| format!("{name}: {why}"))?;
        }
        self.given[at] = Some(Given { texts, source });
        Ok(())
    }

    fn unknown(&self, name: &str) -> String {
        let alike = |key: &&Key| {
            let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
            let (whole, part) =
                (strsim::jaro_winkler(&key.name, name), strsim::jaro_winkler(&last(&key.name), &last(name)));
            whole.max(part)
        };
        let nearest = self.keys.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
        match nearest.filter(|key| alike(key) > ALIKE) {
            Some(key) => format!("unknown setting {name:?}; did you mean {}?", key.name),
            None => format!("unknown setting {name:?}; `{}` shows all", self.root.shown_by()),
        }
    }

    /// Returns the error text for the value of a setting, with the position where it was set.
    pub(crate) fn config_error(&self, name: &str, why: &str) -> String {
        let given = self.keys.iter().position(|key| key.name == name).and_then(|at| self.given[at].as_ref());
        match given.map(|given| &given.source) {
            None | Some(Source::Flag) => format!("{name}: {why}"),
            Some(source) => format!("{source}: {name}: {why}"),
        }
    }

    /// Returns the line of the file that sets `name`, if one does.
    fn line_of(&self, name: &str) -> Option<usize> {
        let at = self.keys.iter().position(|key| key.name == name)?;
        match self.given[at].as_ref()?.source {
            Source::File(_, line) => Some(line),
            Source::Environment(_) | Source::Flag => None,
        }
    }

    /// Returns the values in effect: those that were given, else the default.
    fn values(&self, name: &str) -> Vec<String> {
        let at = self.keys.iter().position(|key| key.name == name).expect("names here are of the table");
        match &self.given[at] {
            Some(given) => given.texts.clone(),
            None => self.keys[at].default.clone().into_iter().collect(),
        }
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.values(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.values(name).pop()
    }

    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(|text| text == "true")
    }

    /// Returns a time, which was checked when it was set.
    pub(crate) fn time(&self, name: &str) -> Duration {
        self.text(name).and_then(|text| Limits::parse_time(&text).ok()).unwrap_or_default()
    }

    /// # Errors
    /// A certificate without a key, a key without a certificate, or roots without both.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, String> {
        match (self.text("tls.cert"), self.text("tls.key"), self.text("tls.client_ca")) {
            (None, None, None) => Ok(None),
            (Some(certificate), Some(key), roots) => {
                let tls = Tls::files(certificate, key);
                Ok(Some(match roots {
                    Some(roots) => tls.client_roots(roots),
                    None => tls,
                }))
            }
            _ => {
                let names = ["tls.cert", "tls.key", "tls.client_ca"];
                let given = names.into_iter().find(|name| self.text(name).is_some()).unwrap_or(names[0]);
                Err(self
                    .config_error(given, "tls.cert and tls.key go together, and tls.client_ca needs both"))
            }
        }
    }

    /// # Errors
    /// None: every value was checked when it was set.
    pub(crate) fn limits(&self) -> Result<Limits, String> {
        let mut limits = Limits::default();
        for (key, given) in self.keys.iter().zip(&self.given) {
            let (Kind::Limit(limit), Some(given)) = (&key.kind, given) else { continue };
            let source = match given.source {
                Source::Environment(_) => limits::Source::Environment,
                Source::File(..) => limits::Source::File,
                Source::Flag => limits::Source::Flag,
            };
            let setting = format!("{}={}", limit.name(), given.texts[0]);
            limits.parse(&setting, source).map_err(|error| error.to_string())?;
        }
        Ok(limits)
    }
}

/// The errors of a file and the environment.
#[derive(Debug, Default)]
struct Errors(Vec<(Option<usize>, String)>);

impl Errors {
    /// Adds an error at this line of the file, or without a line.
    fn add(&mut self, line: Option<usize>, text: String) {
        self.0.push((line, text));
    }

    /// # Errors
    /// All errors, sorted by line; those without a line come last.
    fn finish(mut self) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        let texts: Vec<_> = self.0.into_iter().map(|(_, text)| text).collect();
        Err(texts.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Config {
        Config::new(Root::Serve)
    }

    fn read(config: &mut Config, file: &str) -> Result<(), String> {
        let mut errors = Errors::default();
        config.file(file, "a.toml", &mut errors);
        errors.finish()
    }

    fn read_variables(config: &mut Config, variables: &[(&str, &str)]) -> Result<(), String> {
        let mut errors = Errors::default();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        config.environment(variables, &mut errors);
        errors.finish()
    }

    #[test]
    fn every_error_is_reported_in_the_order_of_its_line() {
        let file = "workers = 0\nzebra = 1\n[tls]\ncert = \"a\"\nkye = \"b\"\n\n\
                    [limits]\ncalls_max = \"x\"\nmesage_bytes_max = 1\n";
        let errors = read(&mut empty(), file).unwrap_err();
        let places: Vec<_> = errors.lines().map(|line| line.split(": ").next().unwrap_or_default()).collect();
        assert_eq!(places, ["a.toml:1", "a.toml:2", "a.toml:5", "a.toml:8", "a.toml:9"], "{errors}");
        let errors = read(&mut empty(), "workers = \nlog = \"info\"\nrate = \n").unwrap_err();
        assert!(errors.contains("a.toml:1: ") && errors.contains("a.toml:3: "), "{errors}");
        let variables = [("SWITCHBOARD_SERVE_LITSEN", "a:1"), ("SWITCHBOARD_SERVE_WORKERS", "0")];
        let errors = read_variables(&mut empty(), &variables).unwrap_err();
        assert_eq!(errors.lines().count(), 2, "{errors}");
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let mut config = empty();
        let file = "access_log = 7\nlisten = [\"127.0.0.1:1\", \"unix:/a\"]\n[limits]\ncalls_max = 5\n";
        read(&mut config, file).unwrap();
        let variables = [
            ("SWITCHBOARD_SERVE_LIMITS_CALLS_MAX", "6"),
            ("SWITCHBOARD_SERVE_SLOW_CALL", "1s"),
            ("SWITCHBOARD_SERVE_REGISTER_TO", "etcd://a:1,b:2/x, file:c.json"),
            ("OTHER", "x"),
        ];
        read_variables(&mut config, &variables).unwrap();
        config.flag("slow_call", Some("2s".to_owned())).unwrap();
        config.flag("access_log", None).unwrap();
        assert_eq!(config.texts("listen"), ["127.0.0.1:1", "unix:/a"]);
        assert_eq!(config.texts("register.to"), ["etcd://a:1,b:2/x", "file:c.json"]);
        assert_eq!((config.count("access_log"), config.time("slow_call")), (Some(7), Duration::from_secs(2)));
        let limits = config.limits().unwrap();
        let calls_max = switchboard::Limit::CallsMax;
        assert_eq!((limits.get(calls_max), limits.source(calls_max)), (6, limits::Source::Environment));
    }

    #[test]
    fn errors_name_the_key_and_the_nearest_one() {
        for (file, expected) in [
            ("acess_log = 1", "did you mean access_log?"),
            ("calls_max = 1", "did you mean limits.calls_max?"),
            ("[limits]\nmesage_bytes_max = \"1MiB\"", "did you mean limits.message_bytes_max?"),
            ("[tsl]\ncert = \"a\"", "unknown setting \"tsl\""),
            ("zebra = 1", "config default"),
            ("slow_call = 200", "ms, s, min or h"),
            ("workers = 0", "number from 1 to 1024"),
            ("admin = [\"a:1\", \"b:1\"]", "not a list"),
            ("channelz = \"yes\"", "neither true nor false"),
            ("listen = \"quic://a:1\"", "scheme"),
            ("log = 1.5", "a float is not a value"),
            ("log = ", "a.toml:1: "),
            ("\nrate = 1\nworkers = 0", "a.toml:2: unknown setting"),
            ("\n[limits]\n\ncalls-max = \"x\"", "a.toml:4: limits.calls_max: "),
        ] {
            let error = read(&mut empty(), file).unwrap_err();
            assert!(error.contains(expected), "{file}: {error}");
        }
        let error = read_variables(&mut empty(), &[("SWITCHBOARD_SERVE_LITSEN", "a:1")]).unwrap_err();
        assert!(
            error.contains("SWITCHBOARD_SERVE_LITSEN") && error.contains("did you mean listen?"),
            "{error}"
        );
    }

    #[test]
    fn settings_of_a_proxy_are_its_flags_and_the_shared_limits() {
        let mut config = Config::new(Root::Proxy);
        let file = "to = [\"a:1\"]\ndeadline-max = \"30s\"\nknown_only = true\nreflect = false\nrate = 7\n\
                    [limits]\ncalls_max = 5\n[tls]\ncert = \"c.pem\"\nkey = \"k.pem\"\n";
        read(&mut config, file).unwrap();
        let variables = [("SWITCHBOARD_PROXY_TO", "b:1, c:1"), ("SWITCHBOARD_SERVE_LISTEN", "of another")];
        read_variables(&mut config, &variables).unwrap();
        let mut flags = config.as_flags();
        flags.sort_unstable();
        let wanted =
            ["--deadline-max=30s", "--known-only", "--rate=7", "--tls-cert=c.pem", "--tls-key=k.pem"];
        assert_eq!(flags, [&wanted[..], &["--to=b:1", "--to=c:1"]].concat());
        assert_eq!(config.limits().unwrap().get(switchboard::Limit::CallsMax), 5);
        for (file, expected) in [
            ("tap_filtre = [\"a.*\"]", "did you mean tap_filter?"),
            ("[limits]\nmesage_bytes_max = 1", "did you mean limits.message_bytes_max?"),
            ("zebra = 1", "`switchboard config default --proxy` shows all"),
            ("handover = \"/a\"", "unknown setting \"handover\""),
            ("config = \"a.toml\"", "unknown setting \"config\""),
            ("rate = 0", "number from 1"),
            ("deadline_max = 5", "ms, s, min or h"),
        ] {
            let error = read(&mut config, file).unwrap_err();
            assert!(error.contains(expected), "{file}: {error}");
        }
    }
}
