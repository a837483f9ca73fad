//! How stores of keys and values keep instances: which key, which value.

#[cfg(any(feature = "consul", feature = "etcd", feature = "mdns", feature = "redis", feature = "zookeeper"))]
mod rpcx;

#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "mdns",
    feature = "redis",
    feature = "zookeeper"
))]
pub use rpcx::RpcxLayout;

use switchboard::{
    Result,
    discover::{Instance, escape},
};

/// The keys and values of a registry in etcd, Redis, ZooKeeper or Consul.
///
/// Keys are paths: a folder for each service, whose name no other folder begins with, since it ends in `/`.
pub trait Layout: Send + Sync + 'static {
    /// The folder of a service, from the root on, with a `/` at its end.
    fn folder(&self, service: &str) -> String;

    /// The name of an instance in its folder; no `/` is in it.
    ///
    /// # Errors
    /// `InvalidArgument` for what this layout cannot say.
    fn name(&self, instance: &Instance) -> Result<String>;

    /// Whether a name in the folder of a service, or below it, can be one of an instance.
    fn is_name(&self, name: &str) -> bool {
        !name.contains('/')
    }

    /// The value of an instance.
    ///
    /// # Errors
    /// `InvalidArgument` for what this layout cannot say.
    fn encode(&self, instance: &Instance) -> Result<Vec<u8>>;

    /// Reads a value of the folder of `service` with this name.
    ///
    /// # Errors
    /// `InvalidArgument` for what this layout does not write.
    fn decode(&self, service: &str, name: &str, value: &[u8], bytes_max: usize) -> Result<Instance>;

    /// The whole key of an instance.
    ///
    /// # Errors
    /// `InvalidArgument` for what this layout cannot say.
    fn key(&self, instance: &Instance) -> Result<String> {
        Ok(self.folder(&instance.service) + &self.name(instance)?)
    }
}

/// Our own: `PREFIX/SERVICE/ID`, both names [escaped](escape), with [`Instance::encode`] as the value.
#[derive(Clone, Debug)]
pub struct OwnLayout {
    prefix: String,
}

impl OwnLayout {
    /// The prefix unless one is set.
    pub const PREFIX: &'static str = "switchboard";

    /// Everything below `prefix`; slashes around it do not matter, and an empty one is [`PREFIX`](Self::PREFIX).
    pub fn new(prefix: &str) -> OwnLayout {
        let prefix = prefix.trim_matches('/');
        OwnLayout { prefix: if prefix.is_empty() { Self::PREFIX } else { prefix }.to_owned() }
    }
}

impl Layout for OwnLayout {
    fn folder(&self, service: &str) -> String {
        format!("/{}/{}/", self.prefix, escape(service))
    }

    fn name(&self, instance: &Instance) -> Result<String> {
        Ok(escape(&instance.id))
    }

    fn encode(&self, instance: &Instance) -> Result<Vec<u8>> {
        instance.encode(usize::MAX)
    }

    fn decode(&self, _service: &str, _name: &str, value: &[u8], bytes_max: usize) -> Result<Instance> {
        Instance::decode(value, bytes_max)
    }
}

/// Whose keys and values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Style {
    /// [`OwnLayout`].
    #[default]
    Own,
    /// [`RpcxLayout`].
    #[cfg(any(
        feature = "consul",
        feature = "etcd",
        feature = "mdns",
        feature = "redis",
        feature = "zookeeper"
    ))]
    Rpcx,
}

impl Style {
    /// The layout below a prefix; `root` is what rpcx's plug-in for this store puts before its base path.
    #[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
    pub(crate) fn layout(self, prefix: &str, root: &str) -> Box<dyn Layout> {
        match self {
            Style::Own => Box::new(OwnLayout::new(prefix)),
            Style::Rpcx => Box::new(RpcxLayout::new(&format!("{root}{prefix}"))),
        }
    }
}
