//! The keys and values of instances in key-value stores.

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
/// Keys are paths: each service has a folder. Folder names end in `/`, so that none is a prefix of another.
pub trait Layout: Send + Sync + 'static {
    /// Returns the folder of a service from the root, with a `/` at its end.
    fn folder(&self, service: &str) -> String;

    /// Returns the name of an instance in its folder, without `/`.
    ///
    /// # Errors
    /// `InvalidArgument` for an instance that this layout cannot express.
    fn name(&self, instance: &Instance) -> Result<String>;

    /// Returns whether a name in the folder of a service, or below it, can be that of an instance.
    fn is_name(&self, name: &str) -> bool {
        !name.contains('/')
    }

    /// Returns the value of an instance.
    ///
    /// # Errors
    /// `InvalidArgument` for an instance that this layout cannot express.
    fn encode(&self, instance: &Instance) -> Result<Vec<u8>>;

    /// Decodes a value of the folder of `service` with this name.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that this layout does not write.
    fn decode(&self, service: &str, name: &str, value: &[u8], bytes_max: usize) -> Result<Instance>;

    /// Returns the complete key of an instance.
    ///
    /// # Errors
    /// `InvalidArgument` for an instance that this layout cannot express.
    fn key(&self, instance: &Instance) -> Result<String> {
        Ok(self.folder(&instance.service) + &self.name(instance)?)
    }
}

/// The layout of Switchboard: `PREFIX/SERVICE/ID`, both names [escaped](escape), with [`Instance::encode`] as the
/// value.
#[derive(Clone, Debug)]
pub struct OwnLayout {
    prefix: String,
}

impl OwnLayout {
    /// The default prefix.
    pub const PREFIX: &'static str = "switchboard";

    /// Creates the layout below `prefix`; slashes around it are ignored, and an empty prefix is
    /// [`PREFIX`](Self::PREFIX).
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

/// Selects the layout of keys and values.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
// closed: every registry has a layout for each style
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
    /// Returns the layout below a prefix; `root` is the text that rpcx's plug-in for this store puts before its base
    /// path.
    #[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
    pub(crate) fn layout(self, prefix: &str, root: &str) -> Box<dyn Layout> {
        match self {
            Style::Own => Box::new(OwnLayout::new(prefix)),
            Style::Rpcx => Box::new(RpcxLayout::new(&format!("{root}{prefix}"))),
        }
    }
}
