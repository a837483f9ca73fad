//! Registration of `switchboard serve` with registries.

use crate::config::Config;
use switchboard::{Server, discover::Instance};

/// The settings `register.NAME` that describe the server; `--register-as` uses the same names.
pub(crate) const NAMES: [&str; 7] = ["address", "group", "notice", "tags", "version", "weight", "zone"];

/// Returns the server with a registration at every registry in the settings.
///
/// # Errors
/// An invalid address of a registry; nothing is sent to it before the server listens.
pub(crate) fn registered(server: Server, config: &Config) -> Result<Server, String> {
    let mut server = server.registration_notice(config.time("register.notice"));
    for url in config.texts("register.to") {
        let registry = switchboard_registry::connect(&url).map_err(|status| status.message().to_owned())?;
        server = server.register(registry, instance(config));
    }
    Ok(server)
}

/// Returns the description of the server; the server adds the rest when it listens.
fn instance(config: &Config) -> Instance {
    let text = |name: &str| config.text(name).unwrap_or_default();
    let mut instance = Instance::new("", text("register.address"))
        .group(text("register.group"))
        .version(text("register.version"))
        .zone(text("register.zone"));
    if let Some(weight) = config.count("register.weight") {
        instance = instance.weight(u32::try_from(weight).unwrap_or(u32::MAX));
    }
    for tag in config.texts("register.tags") {
        if let Some((name, value)) = tag.split_once(':') {
            instance = instance.tag(name, value);
        }
    }
    instance
}
