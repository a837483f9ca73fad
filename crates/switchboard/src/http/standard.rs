//! The standard services: health for probes, and reflection, from the embedded descriptors, for grpcurl.
//!
//! A service of the application with the same name comes first.

use super::{health, traits, unpack};
use crate::{
    compression::REGISTRY,
    server::{Phase, Shared},
};
use connectrpc::{CompressionRegistry, Router};
use connectrpc_health::{HEALTH_SERVICE_NAME, StaticChecker, Status, install_static};
use connectrpc_reflection::{
    Reflector, SERVER_REFLECTION_SERVICE_NAME, SERVER_REFLECTION_V1ALPHA_SERVICE_NAME, install,
};
use std::sync::Arc;
use switchboard_wire::ServiceInfo;

/// What all HTTP connections of a server share.
pub(crate) struct Standard {
    router: Router,
    health: Arc<StaticChecker>,
    compression: CompressionRegistry,
    grpc_compression: CompressionRegistry,
}

impl Standard {
    /// That of this server, made when it is first asked for.
    pub(super) fn of(shared: &Shared) -> &Arc<Standard> {
        shared.http.get_or_init(|| Arc::new(Standard::new(shared.table.services())))
    }

    fn new(services: &[&'static ServiceInfo]) -> Standard {
        let names = services.iter().map(|service| service.name);
        let (router, checker) = install_static(Router::new(), names.clone());
        let router = health::install(router, &checker);
        let own =
            [HEALTH_SERVICE_NAME, SERVER_REFLECTION_SERVICE_NAME, SERVER_REFLECTION_V1ALPHA_SERVICE_NAME];
        let mut listed: Vec<&str> = names.chain(own).collect();
        listed.sort_unstable();
        listed.dedup();
        let router = match reflector(services) {
            Ok(reflector) => install(router, reflector.with_services(listed)),
            Err(error) => {
                tracing::warn!(
                    "reflection is off: the descriptors of the services do not fit together: {error}"
                );
                router
            }
        };
        Standard {
            router,
            health: checker,
            compression: REGISTRY.clone(),
            grpc_compression: unpack::registry(&REGISTRY),
        }
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    pub(super) fn compression(&self) -> CompressionRegistry {
        self.compression.clone()
    }

    /// The same for gRPC and gRPC-Web.
    pub(super) fn grpc_compression(&self) -> CompressionRegistry {
        self.grpc_compression.clone()
    }

    /// The first to look at.
    pub(super) fn codings(&self) -> &CompressionRegistry {
        &self.compression
    }

    /// Names of the compressions, as headers list them.
    pub(super) fn encodings(&self) -> &str {
        self.compression.accept_encoding_header()
    }

    /// Tells probes what the server is doing now.
    pub(crate) fn follow(shared: &Shared) {
        match shared.phase() {
            // The usual case: nobody has asked yet, and what is made then begins with the truth.
            Phase::Serving if shared.http.get().is_none() => {}
            Phase::Serving => Standard::of(shared).tell(Status::Serving),
            Phase::Starting | Phase::Stopping => Standard::of(shared).tell(Status::NotServing),
        }
    }

    fn tell(&self, status: Status) {
        for service in self.health.services() {
            // It was listed a moment ago, and nobody takes one off.
            let _ = self.health.set_status(service, status);
        }
    }
}

/// Every file once: services of one package bring the same set. Traits bring none, one is made for them, and one for
/// the health service.
fn reflector(services: &[&'static ServiceInfo]) -> Result<Reflector, connectrpc_reflection::ReflectionError> {
    let mut reflector = Reflector::from_descriptor_set_bytes(&[])?;
    let mut seen: Vec<*const u8> = Vec::new();
    for service in services.iter().filter(|service| !service.descriptor.is_empty()) {
        let at = service.descriptor.as_ptr();
        if !seen.contains(&at) {
            reflector.add_descriptor_set_bytes(service.descriptor)?;
            seen.push(at);
        }
    }
    // Last: what the services bring themselves comes first.
    let mut traits = services.iter().copied().filter(|service| traits::is_trait(service)).peekable();
    if traits.peek().is_some() {
        reflector.add_descriptor_set_bytes(&traits::descriptors(traits))?;
    }
    // Services may bring it, under whatever name of a file.
    if reflector.pool().service_by_name(HEALTH_SERVICE_NAME).is_none() {
        reflector.add_descriptor_set_bytes(&health::descriptors())?;
    }
    Ok(reflector)
}
