//! The settings of `switchboard proxy`: its flags, which `switchboard config` handles together with those of `serve`.

use super::ProxyArgs;
use crate::config::{Config, Root, flags};
use clap::{Args, Command};

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
        flags::override_with(&mut config, &ProxyArgs::flags(), std::env::args_os().skip(1))?;
        ProxyArgs::of(&config).map(|_| config)
    }

    /// Returns the flags for these settings, except the limits.
    ///
    /// # Errors
    /// An invalid value, or one that conflicts with another.
    pub(crate) fn of(config: &Config) -> Result<ProxyArgs, String> {
        flags::parsed(config, ProxyArgs::flags())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn flags_override_and_are_checked_as_on_a_command_line() {
        let mut config = Config::load(Root::Proxy, None).unwrap();
        config.flag("to", ["a:1".to_owned(), "b:1".to_owned()]).unwrap();
        config.flag("deadline_max", ["30s".to_owned()]).unwrap();
        let own =
            ["proxy", "--to", "c:1", "-H", "x: y", "--reflect", "--tap", "--tls-cert=c.pem", "--tls-key=k"];
        flags::override_with(&mut config, &ProxyArgs::flags(), own.iter().map(OsString::from)).unwrap();
        let args = ProxyArgs::of(&config).unwrap();
        assert_eq!((&args.to[..], args.deadline_max.as_deref()), (&["c:1".to_owned()][..], Some("30s")));
        assert!(args.reflect && !args.known_only && args.headers.len() == 1 && args.tls.settings().is_some());

        config.flag("tap_filter", ["status=odd".to_owned()]).unwrap();
        let wrong = ProxyArgs::of(&config).unwrap_err();
        assert!(wrong.contains("--tap-filter"), "{wrong}");
    }
}
