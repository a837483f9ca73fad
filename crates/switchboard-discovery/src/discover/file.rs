//! A file that lists instances and is read again when it changes.

use super::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry};
use serde::Deserialize;
use std::{
    convert::Infallible,
    fs,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Code, Status};
use tokio::{task::spawn_blocking, time::sleep};

/// Registry in a file of JSON or, with feature `toml` and a name that ends in `.toml`, of TOML. The file is read once a
/// second.
///
/// ```json
/// {"instances": [
///     {"service": "demo.Greeter", "address": "tcp://10.0.0.7:8080"},
///     {"service": "demo.Greeter", "address": "tcp://10.0.0.8:8080", "weight": 50, "tags": {"disk": "fast"}}
/// ]}
/// ```
///
/// In TOML each instance is an `[[instances]]`. The fields are those of [`Instance`]; only `service` and `address` are
/// required, and an unknown field is an error. A file that is invalid or missing changes nothing: the content read last
/// stays, and the log and [`Watch::state`](super::Watch::state) give the reason. Replace the file by renaming another
/// over it, so that it is never read half written.
pub struct File {
    discovery: Discovery,
}

impl File {
    /// Creates a registry of this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>, options: Options) -> File {
        let path = path.into();
        let bytes_max = options.instances_max.saturating_mul(options.instance_bytes_max) as u64;
        let listed = Listed { name: format!("file {}", path.display()), path, bytes_max };
        File { discovery: Discovery::new(listed, options) }
    }
}

impl Registry for File {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

struct Listed {
    name: String,
    path: PathBuf,
    bytes_max: u64,
}

/// Interval between reads of the file. Changes are found by content, because links can be switched and times set back.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Backend for Listed {
    fn name(&self) -> &str {
        &self.name
    }

    fn follow<'a>(&'a self, _service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(async move {
            // The first read is immediate and blocks: it is one file, and a starting process needs its instances.
            let mut content = read(&self.path, self.bytes_max)?;
            loop {
                match parse(&self.path, &content) {
                    Ok(instances) => feed.publish(instances.into_iter().map(Ok)),
                    Err(error) => feed.fail(error),
                }
                loop {
                    sleep(POLL_INTERVAL).await;
                    let (path, bytes_max) = (self.path.clone(), self.bytes_max);
                    match spawn_blocking(move || read(&path, bytes_max)).await {
                        Ok(Ok(same)) if same == content => {}
                        Ok(Ok(new)) => {
                            content = new;
                            break;
                        }
                        Ok(Err(error)) => return Err(error),
                        Err(error) => {
                            return Err(Status::internal(format!("reading {}: {error}", self.name)));
                        }
                    }
                }
            }
        })
    }

    fn may_lose_registrations(&self) -> bool {
        false
    }

    fn register<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async {
            let text = format!("{} does not accept registrations: add the instance to the file", self.name);
            Err(Status::unimplemented(text))
        })
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let failed = |error| Status::unavailable(format!("cannot read {}: {error}", path.display()));
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > bytes_max {
        let text = format!(
            "{} has over {bytes_max} bytes, instances_max times instance_bytes_max: shorten it or raise these limits",
            path.display()
        );
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    Ok(content)
}

/// Content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    instances: Vec<Strict>,
}

/// An instance in a hand-written file: an unknown field is a typing error, not a field of a later version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    service: String,
    address: String,
    id: Option<String>,
    weight: Option<u32>,
    #[serde(default)]
    group: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    state: super::State,
    #[serde(default)]
    tags: std::collections::BTreeMap<String, String>,
}

fn parse(path: &Path, content: &[u8]) -> Result<Vec<Instance>> {
    let invalid = |error: &dyn std::fmt::Display| {
        let text = format!("{}: {error}; the last valid content stays", path.display());
        Status::new(Code::InvalidArgument, text)
    };
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    #[cfg(feature = "toml")]
    let content: Content = if is_toml {
        let text = str::from_utf8(content).map_err(|error| invalid(&error))?;
        toml::from_str(text).map_err(|error| invalid(&error))?
    } else {
        serde_json::from_slice(content).map_err(|error| invalid(&error))?
    };
    #[cfg(not(feature = "toml"))]
    let content: Content = if is_toml {
        return Err(invalid(&"this build does not support TOML: enable feature `toml`, or write JSON"));
    } else {
        serde_json::from_slice(content).map_err(|error| invalid(&error))?
    };
    let instances = content.instances.into_iter().map(Instance::from);
    instances.map(|instance| instance.check().map(|()| instance).map_err(|error| invalid(&error))).collect()
}

impl From<Strict> for Instance {
    fn from(strict: Strict) -> Instance {
        let instance = Instance::new(strict.service, strict.address);
        Instance {
            id: strict.id.unwrap_or(instance.id),
            weight: strict.weight.unwrap_or(instance.weight),
            group: strict.group,
            zone: strict.zone,
            version: strict.version,
            state: strict.state,
            tags: strict.tags,
            ..Instance::new(instance.service, instance.address)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_position() {
        for (name, text, part) in [
            (
                "a.json",
                r#"{"instances":[{"service":"s","address":"a","wieght":1}]}"#,
                "unknown field `wieght`",
            ),
            ("a.json", r#"{"instances":[{"service":"s"}]}"#, "missing field `address`"),
            ("a.json", r#"{"instances":[{"service":"s","address":""}]}"#, "no id"),
            ("a.json", "{", "line 1 column 1"),
            ("a.json", "", "line 1 column 0"),
        ] {
            let error = parse(Path::new(name), text.as_bytes()).unwrap_err();
            assert!(error.message().starts_with("a.json: ") && error.message().contains(part), "{error}");
        }
    }

    #[cfg(feature = "toml")]
    #[test]
    fn toml_gives_the_same_instances_as_json() {
        let toml = "[[instances]]\nservice = 's'\naddress = 'tcp://h:1'\nweight = 7\nstate = 'down'\ntags = { x = 'y' }";
        let json = r#"{"instances":[{"service":"s","address":"tcp://h:1","weight":7,"state":"down","tags":{"x":"y"}}]}"#;
        let parsed = parse(Path::new("a.toml"), toml.as_bytes()).unwrap();
        assert_eq!(parsed, parse(Path::new("a.json"), json.as_bytes()).unwrap());
        assert_eq!(parsed[0].id, "tcp://h:1");
    }

    #[cfg(not(feature = "toml"))]
    #[test]
    fn toml_without_the_feature_is_an_error() {
        assert!(parse(Path::new("a.toml"), b"").unwrap_err().message().contains("feature `toml`"));
    }
}
