//! Programs that run a workload: this one, and those of other libraries that `cargo xtask peers` builds.

use super::options::RivalName;
use serde::Deserialize;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A program that runs both sides of a workload.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub version: String,
    /// The program and its first arguments.
    pub command: Vec<String>,
}

/// The fields of `peer.json` that this needs.
#[derive(Debug, Deserialize)]
struct Manifest {
    version: String,
    messaging: Vec<String>,
}

impl Program {
    /// Returns this program, whose subcommand for a side is `subcommand`.
    ///
    /// # Errors
    /// When the path of this program cannot be found.
    pub fn ours(subcommand: &[&str]) -> Result<Self, String> {
        let path = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut command = vec![path.to_string_lossy().into_owned()];
        command.extend(subcommand.iter().map(|word| (*word).to_owned()));
        Ok(Self { name: "switchboard".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), command })
    }

    /// Finds a rival: its manifest in `bench/peers` of this checkout, and its products in `SWITCHBOARD_PEERS` or
    /// `.peers` of the checkout.
    ///
    /// # Errors
    /// When there is no checkout, or the rival is not built; the text says what to do.
    pub fn rival(name: RivalName) -> Result<Self, String> {
        let name = name.name();
        let here = env::current_dir().map_err(|error| format!("cannot find the working folder: {error}"))?;
        let checkout =
            here.ancestors().find(|folder| folder.join("bench/peers").is_dir()).ok_or_else(|| {
                format!("--rival {name} needs a checkout: {} has no bench/peers above it", here.display())
            })?;
        let products = env::var_os("SWITCHBOARD_PEERS").filter(|folder| !folder.is_empty());
        let products = products.map_or_else(|| checkout.join(".peers"), PathBuf::from);
        read(name, &checkout.join("bench/peers"), &products.join("bench"))
    }
}

fn read(name: &str, sources: &Path, products: &Path) -> Result<Program, String> {
    let file = sources.join(name).join("peer.json");
    let invalid = |error: String| format!("{}: {error}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| invalid(error.to_string()))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    let out = std::path::absolute(products.join(name)).map_err(|error| error.to_string())?;
    let command: Vec<String> =
        manifest.messaging.iter().map(|word| word.replace("{out}", &out.to_string_lossy())).collect();
    let built = command.first().is_some_and(|program| Path::new(program).is_file());
    if !built {
        // `cargo xtask peers` writes the reason of a failed build to this file.
        let reason = fs::read_to_string(out.join("absent.txt")).unwrap_or_default();
        let reason = if reason.is_empty() { "not built".to_owned() } else { reason.trim().to_owned() };
        return Err(format!("{name}: {reason}; `cargo xtask peers --only {name}` builds it"));
    }
    Ok(Program { name: name.to_owned(), version: manifest.version, command })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_that_is_not_built_is_named_with_the_reason() {
        let folder = env::temp_dir().join(format!("switchboard-bus-rivals-{}", std::process::id()));
        let (sources, products) = (folder.join("sources"), folder.join("products"));
        for path in [sources.join("x"), products.join("x")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(sources.join("x/peer.json"), r#"{"version": "1", "messaging": ["{out}/x", "bus"]}"#)
            .unwrap();
        let missing = read("x", &sources, &products).unwrap_err();
        fs::write(products.join("x/absent.txt"), "no compiler\n").unwrap();
        let failed = read("x", &sources, &products).unwrap_err();
        fs::write(products.join("x/x"), "").unwrap();
        let built = read("x", &sources, &products);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(missing, "x: not built; `cargo xtask peers --only x` builds it");
        assert!(failed.starts_with("x: no compiler; "), "{failed}");
        let built = built.unwrap();
        assert!(built.command[0].ends_with("products/x/x") && built.command[1] == "bus", "{built:?}");
    }
}
