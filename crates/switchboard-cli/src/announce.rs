//! Registration of `switchboard serve` with registries.

use crate::config::Config;
use switchboard::{Server, discover::Instance};

/// The settings `announce.NAME` that describe the server; `--announce-as` uses the same names.
pub(crate) const NAMES: [&str; 7] = ["address", "group", "notice", "tags", "version", "weight", "zone"];

/// Returns the server with a registration at every registry in the settings.
///
/// # Errors
/// An invalid address of a registry; nothing is sent to it before the server listens.
pub(crate) fn announced(server: Server, config: &Config) -> Result<Server, String> {
    let mut server = server.announce_notice(config.time("announce.notice"));
    for url in config.texts("announce.to") {
        let registry = switchboard_registry::connect(&url).map_err(|status| status.message().to_owned())?;
        server = server.announce(registry, instance(config));
    }
    Ok(server)
}

/// Returns the description of the server; the server adds the rest when it listens.
fn instance(config: &Config) -> Instance {
    let text = |name: &str| config.text(name).unwrap_or_default();
    let mut instance = Instance::new("", text("announce.address"))
        .group(text("announce.group"))
        .version(text("announce.version"))
        .zone(text("announce.zone"));
    if let Some(weight) = config.count("announce.weight") {
        instance = instance.weight(u32::try_from(weight).unwrap_or(u32::MAX));
    }
    for tag in config.texts("announce.tags") {
        if let Some((name, value)) = tag.split_once(':') {
            instance = instance.tag(name, value);
        }
    }
    instance
}
