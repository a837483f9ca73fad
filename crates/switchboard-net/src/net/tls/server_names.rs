//! Selection of a certificate by the server name that a client requests (SNI).

use super::files::Pair;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{collections::HashMap, sync::Arc};

/// Certificates by DNS name; the first certificate is the default for other names and for clients without
/// SNI.
#[derive(Debug)]
pub(super) struct ServerNames {
    default: Arc<CertifiedKey>,
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// Wildcard certificates, by the name after `*.`.
    wildcards: HashMap<String, Arc<CertifiedKey>>,
}

impl ServerNames {
    /// Returns `None` without a certificate.
    pub(super) fn new(pairs: &[Pair]) -> Option<ServerNames> {
        let default = pairs.first()?.key.clone();
        let mut names = ServerNames { default, exact: HashMap::new(), wildcards: HashMap::new() };
        for pair in pairs {
            for name in pair.summary.dns_names() {
                let name = name.to_ascii_lowercase();
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut names.wildcards, parent.to_owned()),
                    None => (&mut names.exact, name),
                };
                map.entry(name).or_insert_with(|| pair.key.clone());
            }
        }
        Some(names)
    }

    fn choose(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(name) = name else { return &self.default };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.exact
            .get(&name)
            // A wildcard matches one label of the name.
            .or_else(|| self.wildcards.get(name.split_once('.')?.1))
            .unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ServerNames {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name()).clone())
    }
}
