//! Methods that a proxy calls by the names of its callers; these names are not interned.

use super::ClientMethod;
use switchboard_wire::{Kind, MethodInfo, ServiceInfo};

static SERVICE: ServiceInfo = ServiceInfo {
    name: "*",
    methods: &[
        MethodInfo::new("*", Kind::Unary),
        MethodInfo::new("*", Kind::ServerStream),
        MethodInfo::new("*", Kind::Bidi),
    ],
    descriptor: &[],
};

static METHODS: [ClientMethod; 3] = [
    ClientMethod { service: &SERVICE, index: 0, path: "*" },
    ClientMethod { service: &SERVICE, index: 1, path: "*" },
    ClientMethod { service: &SERVICE, index: 2, path: "*" },
];

impl ClientMethod {
    /// Returns the method of this kind whose name is in the [metadata](Metadata::undeclared_name) of the call.
    #[doc(hidden)]
    pub fn undeclared(kind: Kind) -> &'static ClientMethod {
        &METHODS[match kind {
            Kind::Unary => 0,
            Kind::ServerStream => 1,
            Kind::Bidi | Kind::ClientStream => 2,
        }]
    }

    /// Returns true when the name is in the metadata of the call.
    #[inline]
    pub(crate) fn is_undeclared(&self) -> bool {
        std::ptr::eq(self.service, &SERVICE)
    }

    /// The full name of the method, for a call with this metadata.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn path_of<'a>(&self, metadata: &'a switchboard_wire::Metadata) -> &'a str {
        match metadata.undeclared_name() {
            Some(name) if self.is_undeclared() => name,
            _ => self.path,
        }
    }
}
