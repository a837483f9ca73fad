//! Which method a name means.

use crate::{Kind, MethodId, MethodTable, Status};

/// The service of learned methods that were called without one.
const NAMELESS: &str = "thrift";

/// The method that a message names: `Service:method`, with or without the package of the service, or the method alone,
/// which then is that of the first service that has one of the name. `Service/method` can be an alias. What no service
/// has is learned, where such calls are taken.
///
/// # Errors
/// `Unimplemented` with what there is instead.
pub(super) fn find(table: &MethodTable, name: &[u8]) -> Result<MethodId, Status> {
    let Ok(name) = std::str::from_utf8(name) else {
        return Err(Status::unimplemented("the name of a method is not UTF-8"));
    };
    // Names of services have no colon, names of methods neither.
    let (service, method) = match name.rsplit_once(':') {
        Some((service, method)) => (Some(service), method),
        None => (None, name),
    };
    if let Some(service) = service
        && let Some(id) = table.find(&format!("{service}/{method}"))
    {
        return Ok(id);
    }
    let meant = |known: &str| match service {
        None => true,
        Some(service) => {
            known.strip_suffix(service).is_some_and(|package| package.is_empty() || package.ends_with('.'))
        }
    };
    let services = table.services().iter().filter(|known| meant(known.name));
    let found = services.clone().find_map(|known| {
        known.methods.iter().find(|info| info.name == method)?;
        // Those that are hidden have no name there.
        table.find(&format!("{}/{method}", known.name))
    });
    if let Some(found) = found {
        return Ok(found);
    }
    match (service, services.clone().next()) {
        (Some(_), Some(known)) => Err(table.unknown(&format!("{}/{method}", known.name))),
        (Some(service), None) => table
            .learn(&format!("{service}/{method}"), Kind::Unary)
            .ok_or_else(|| Status::unimplemented(format!("unknown service {service}"))),
        (None, _) => table.learn(&format!("{NAMELESS}/{method}"), Kind::Unary).ok_or_else(|| {
            Status::unimplemented(format!("unknown method {method}: no service here has one"))
        }),
    }
}
