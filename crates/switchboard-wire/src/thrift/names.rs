//! Lookup of methods by name.

use crate::{Found, Kind, MethodTable, Status};

/// Service of undeclared methods that were called without a service.
const NAMELESS: &str = "thrift";

/// Finds the method that a message names. `Service:method` may have the package of the service or not. The method alone
/// means the first service with a method of this name. `Service/method` may be an alias. A name that no service has is
/// used unchanged, if such calls are accepted.
///
/// # Errors
/// `Unimplemented` with the methods that exist.
pub(super) fn find(table: &MethodTable, name: &[u8]) -> Result<Found, Status> {
    look_up(table, name).or_else(|status| {
        let name = String::from_utf8_lossy(name).replace(':', "/");
        table.refuse(&name, Kind::Unary, status)
    })
}

fn look_up(table: &MethodTable, name: &[u8]) -> Result<Found, Status> {
    let Ok(name) = std::str::from_utf8(name) else {
        return Err(Status::unimplemented("the name of a method is not UTF-8"));
    };
    // Names of services and methods contain no colon.
    let (service, method) = match name.rsplit_once(':') {
        Some((service, method)) => (Some(service), method),
        None => (None, name),
    };
    if let Some(service) = service
        && let Some(id) = table.find(&format!("{service}/{method}"))
    {
        return Ok(id.into());
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
        // Hidden methods are not found.
        table.find(&format!("{}/{method}", known.name))
    });
    if let Some(found) = found {
        return Ok(found.into());
    }
    match (service, services.clone().next()) {
        (Some(_), Some(known)) => Err(table.unknown(&format!("{}/{method}", known.name))),
        (Some(service), None) => {
            let full = format!("{service}/{method}");
            table.undeclared(&full, Kind::Unary).ok_or_else(|| table.unknown(&full))
        }
        (None, _) => table.undeclared(&format!("{NAMELESS}/{method}"), Kind::Unary).ok_or_else(|| {
            Status::unimplemented(format!("unknown method {method}: no service here has one"))
        }),
    }
}
