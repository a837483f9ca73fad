//! The standard services: health for probes, and reflection, from the embedded descriptors, for grpcurl.
//!
//! A service of the application with the same name takes precedence.

use super::{health, traits, unpack};
use crate::http::HttpState;
use buffa::Message;
use buffa_descriptor::generated::descriptor::FileDescriptorSet;
use connectrpc::{CompressionRegistry, Router};
use connectrpc_health::{HEALTH_SERVICE_NAME, StaticChecker, Status, install_static};
use connectrpc_reflection::{
    Reflector, SERVER_REFLECTION_SERVICE_NAME, SERVER_REFLECTION_V1ALPHA_SERVICE_NAME, install,
};
use std::sync::{Arc, Mutex, PoisonError};
use switchboard_core::compression::REGISTRY;
use switchboard_driver::serving::Phase;
use switchboard_guard::guard::Visible;
use switchboard_wire::{MethodTable, ServiceInfo};

/// Cached reflection services for callers that may not call every method.
const NARROWED_MAX: usize = 16;

/// The standard services that all HTTP connections of a server share.
pub struct Standard {
    router: Arc<Router>,
    /// Reflection for callers that may not call every method, the newest last.
    narrowed: Mutex<Vec<(Visible, Arc<Router>)>>,
    health: Arc<StaticChecker>,
    compression: CompressionRegistry,
    grpc_compression: CompressionRegistry,
}

impl Standard {
    /// Returns the standard services of this server, created at the first request.
    pub(super) fn of(shared: &HttpState) -> &Arc<Standard> {
        shared.standard.get_or_init(|| Arc::new(Standard::new(shared.table.services())))
    }

    fn new(services: &[&'static ServiceInfo]) -> Standard {
        let names = services.iter().map(|service| service.name);
        let (router, checker) = install_static(Router::new(), names.clone());
        let router = health::install(router, &checker);
        let router = match reflector(services, None) {
            Ok(reflector) => install(router, reflector.with_services(listed(names))),
            Err(error) => {
                tracing::warn!(
                    "reflection is off: the descriptors of the services do not fit together: {error}"
                );
                router
            }
        };
        Standard {
            router: Arc::new(router),
            narrowed: Mutex::default(),
            health: checker,
            compression: REGISTRY.clone(),
            grpc_compression: unpack::registry(&REGISTRY),
        }
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// Returns reflection for a caller that may see these methods. Routers are created when they are needed; callers
    /// that may call the same methods share one.
    pub(super) fn reflection(&self, shared: &HttpState, visible: &Visible) -> Arc<Router> {
        if visible.is_all() {
            return self.router.clone();
        }
        let find = |known: &[(Visible, Arc<Router>)]| {
            known.iter().find(|(of, _)| of == visible).map(|(_, router)| router.clone())
        };
        let lock = || self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(router) = find(&lock()) {
            return router;
        }
        let router = Arc::new(narrow(&shared.table, visible));
        let mut known = lock();
        if known.len() == NARROWED_MAX {
            known.remove(0);
        }
        known.push((visible.clone(), router.clone()));
        router
    }

    pub(super) fn compression(&self) -> CompressionRegistry {
        self.compression.clone()
    }

    /// Returns the compressions for gRPC and gRPC-Web.
    pub(super) fn grpc_compression(&self) -> CompressionRegistry {
        self.grpc_compression.clone()
    }

    /// Returns the registry of the compressions.
    pub(super) fn codings(&self) -> &CompressionRegistry {
        &self.compression
    }

    /// Returns the names of the compressions, as headers list them.
    pub(super) fn encodings(&self) -> &str {
        self.compression.accept_encoding_header()
    }

    /// Updates the health status to the phase of the server.
    pub fn follow(shared: &HttpState) {
        match shared.phase() {
            // The usual case: no request has created the services yet, and they are created with the current status.
            Phase::Serving if shared.standard.get().is_none() => {}
            Phase::Serving => Standard::of(shared).set_health(Status::Serving),
            Phase::Starting | Phase::Stopping => Standard::of(shared).set_health(Status::NotServing),
        }
    }

    fn set_health(&self, status: Status) {
        for service in self.health.services() {
            // The service is listed above, and services are never removed.
            let _ = self.health.set_status(service, status);
        }
    }
}

/// Decides by the full name of a service and the name of a method.
type IsShown<'a> = dyn Fn(&str, &str) -> bool + 'a;

/// Contains every file once: services of one package have the same set of files. Traits have no files, so one is
/// generated for them, and one for the health service.
///
/// With `is_shown`, methods that it rejects are removed, and so are services without any remaining method.
fn reflector(
    services: &[&'static ServiceInfo],
    is_shown: Option<&IsShown<'_>>,
) -> Result<Reflector, connectrpc_reflection::ReflectionError> {
    let shown = |descriptor: &[u8]| match is_shown {
        None => descriptor.to_vec(),
        Some(is_shown) => narrowed(descriptor, is_shown),
    };
    let mut reflector = Reflector::from_descriptor_set_bytes(&[])?;
    let mut seen: Vec<*const u8> = Vec::new();
    for service in services.iter().filter(|service| !service.descriptor.is_empty()) {
        let at = service.descriptor.as_ptr();
        if !seen.contains(&at) {
            reflector.add_descriptor_set_bytes(&shown(service.descriptor))?;
            seen.push(at);
        }
    }
    // Last, because files of the services take precedence.
    let mut traits = services.iter().copied().filter(|service| traits::is_trait(service)).peekable();
    if traits.peek().is_some() {
        reflector.add_descriptor_set_bytes(&shown(&traits::descriptors(traits)))?;
    }
    // Services may contain it, in a file of any name.
    if reflector.pool().service_by_name(HEALTH_SERVICE_NAME).is_none() {
        reflector.add_descriptor_set_bytes(&health::descriptors())?;
    }
    Ok(reflector)
}

/// Returns reflection of these methods.
fn narrow(table: &MethodTable, visible: &Visible) -> Router {
    let services = table.services().iter().copied();
    let services: Vec<_> = services.filter(|service| visible.has_service(table, service.name)).collect();
    let is_shown = |service: &str, method: &str| {
        table.find(&format!("{service}/{method}")).is_some_and(|id| visible.has(id))
    };
    match reflector(&services, Some(&is_shown)) {
        Ok(reflector) => {
            let names = services.iter().map(|service| service.name);
            install(Router::new(), reflector.with_services(listed(names)))
        }
        Err(error) => {
            tracing::warn!("reflection is off for callers that may not call every method: {error}");
            Router::new()
        }
    }
}

/// Returns the services that reflection lists: the given ones and the standard ones.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let own = [HEALTH_SERVICE_NAME, SERVER_REFLECTION_SERVICE_NAME, SERVER_REFLECTION_V1ALPHA_SERVICE_NAME];
    let mut listed: Vec<&str> = names.chain(own).collect();
    listed.sort_unstable();
    listed.dedup();
    listed
}

/// Returns an encoded `FileDescriptorSet` without the methods that are not visible. A set that cannot be decoded
/// becomes empty: it could not be served either.
fn narrowed(descriptor: &[u8], is_shown: &IsShown<'_>) -> Vec<u8> {
    let Ok(mut set) = FileDescriptorSet::decode_from_slice(descriptor) else { return Vec::new() };
    for file in &mut set.file {
        let package = file.package.clone().unwrap_or_default();
        for service in &mut file.service {
            let short = service.name.as_deref().unwrap_or_default();
            let name = if package.is_empty() { short.to_owned() } else { format!("{package}.{short}") };
            service.method.retain(|method| is_shown(&name, method.name.as_deref().unwrap_or_default()));
        }
        file.service.retain(|service| !service.method.is_empty());
        // Comments refer to positions, and the positions have changed.
        file.source_code_info = None.into();
    }
    set.encode_to_vec()
}
