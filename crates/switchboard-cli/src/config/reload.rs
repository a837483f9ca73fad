//! Settings that change while a server runs: all of a change comes into force, or nothing of it.

use super::{Config, Reload};
use switchboard::Running;

/// What a command does with settings that it takes itself, once nothing can fail any more; says what it did.
pub(crate) struct Prepared(Box<dyn FnOnce() -> Vec<String>>);

impl Prepared {
    pub(crate) fn new(apply: impl FnOnce() -> Vec<String> + 'static) -> Prepared {
        Prepared(Box::new(apply))
    }

    /// Of a command that takes none.
    pub(crate) fn nothing() -> Prepared {
        Prepared::new(Vec::new)
    }
}

impl Config {
    /// Brings what the sources say by now into force, and says on standard error what was done. `prepare` gets the new
    /// settings and the names of those that changed and are the command's own to take; it changes nothing yet.
    ///
    /// With a mistake anywhere everything stays as it was.
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

    /// What waits for the next start stays what it is in force, so that it is named again with every reload until then.
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
            checked.map_err(|error| new.wrong(name, &error.to_string()))?;
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
            said.push(format!("{} changed: it comes into force with the next start", self.keys[at].name));
        }
        for at in flags.into_iter().chain(taken) {
            self.given[at] = new.given[at].clone();
        }
        Ok(said)
    }

    /// Whether a setting waits although it could be taken: what is said of another tap is not for this one, which might
    /// show what it is not to.
    fn waits(&self, at: usize, new: &Config) -> bool {
        let is_of_tap = matches!(&*self.keys[at].name, "tap_filter" | "tap_redact");
        is_of_tap && self.values("tap") != new.values("tap")
    }

    /// What the flag of a setting is to be.
    fn flag_value(&self, at: usize) -> String {
        let key = &self.keys[at];
        self.values(&key.name).pop().unwrap_or_else(|| key.unset().to_owned())
    }
}

/// The flag of the server that a setting is.
fn flag_of(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}
