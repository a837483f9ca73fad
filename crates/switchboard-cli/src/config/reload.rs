//! Settings that change while a server runs: a change is applied completely or not at all.

use super::{Config, Reload};
use switchboard::Running;

/// Applies the settings that a command handles itself, after all checks; returns what was changed.
pub(crate) struct Prepared(Box<dyn FnOnce() -> Vec<String>>);

impl Prepared {
    pub(crate) fn new(apply: impl FnOnce() -> Vec<String> + 'static) -> Prepared {
        Prepared(Box::new(apply))
    }

    /// Creates the preparation of a command that handles no setting itself.
    pub(crate) fn nothing() -> Prepared {
        Prepared::new(Vec::new)
    }
}

impl Config {
    /// Applies the current values of the sources, and prints on standard error what was changed. `prepare` gets the new
    /// settings and the names of the changed ones that the command handles itself; it must not change anything yet.
    ///
    /// If there is any error, nothing is changed.
    pub(crate) fn follow(
        &mut self,
        new: Result<Config, String>,
        running: &Running,
        prepare: impl FnOnce(&Config, &[&str]) -> Result<Prepared, String>,
    ) {
        match new.and_then(|new| self.reload(&new, running, prepare)) {
            Ok(said) if said.is_empty() => eprintln!("reloaded: nothing has changed"),
            Ok(said) => said.iter().for_each(|said| eprintln!("reloaded: {said}")),
            Err(why) => eprintln!("not reloaded, nothing was changed: {why}"),
        }
    }

    /// Settings that need a restart keep their old value here, so that every reload names them until then.
    fn reload(
        &mut self,
        new: &Config,
        running: &Running,
        prepare: impl FnOnce(&Config, &[&str]) -> Result<Prepared, String>,
    ) -> Result<Vec<String>, String> {
        let changed = (0..self.keys.len()).filter(|at| {
            let name = &self.keys[*at].name;
            self.values(name) != new.values(name)
        });
        let (mut flags, mut taken, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for at in changed {
            match self.keys[at].reload {
                _ if self.waits(at, new) => waiting.push(at),
                Reload::Flag => flags.push(at),
                Reload::Never => waiting.push(at),
                Reload::Taken => taken.push(at),
            }
        }
        for at in &flags {
            let name = &self.keys[*at].name;
            let checked = running.check_flag(flag_of(name), &new.flag_value(*at));
            checked.map_err(|error| new.config_error(name, &error.to_string()))?;
        }
        let names: Vec<_> = taken.iter().map(|at| self.keys[*at].name.as_str()).collect();
        let Prepared(apply) = prepare(new, &names)?;

        // Nothing fails from here on.
        let mut said = Vec::new();
        for at in &flags {
            let name = &self.keys[*at].name;
            said.push(match running.set_flag(flag_of(name), &new.flag_value(*at), "SIGHUP") {
                Ok(()) if new.values(name).is_empty() => format!("{name} is not set now"),
                Ok(()) => format!("{name} is {} now", new.values(name).join(", ")),
                Err(error) => format!("{name} stays: {error}"),
            });
        }
        said.extend(apply());
        for at in waiting {
            said.push(format!("{} changed: it takes effect with the next start", self.keys[at].name));
        }
        for at in flags.into_iter().chain(taken) {
            self.given[at] = new.given[at].clone();
        }
        Ok(said)
    }

    /// Returns whether a setting needs a restart although its kind is reloadable. Settings of another tap must not be
    /// applied to this one, which might then print confidential data.
    fn waits(&self, at: usize, new: &Config) -> bool {
        let is_of_tap = matches!(&*self.keys[at].name, "tap_filter" | "tap_redact" | "tap_undecoded");
        is_of_tap && self.values("tap") != new.values("tap")
    }

    /// Returns the value for the flag of a setting.
    fn flag_value(&self, at: usize) -> String {
        let key = &self.keys[at];
        self.values(&key.name).pop().unwrap_or_else(|| key.unset().to_owned())
    }
}

/// Returns the name of the server's flag for a setting.
fn flag_of(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}
