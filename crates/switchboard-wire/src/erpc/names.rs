//! Conversion of method names between erpc and `package.Service/Method`.

use crate::{Found, Kind, MethodTable, Status};

/// Form in which a client calls the method `SayHello` of the service `demo.Greeter`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Names {
    /// `/demo.Greeter/SayHello`, for Switchboard servers with several services of the same short name.
    Full,
    /// `/greeter/say_hello`, the default name of erpc for the methods of a struct.
    #[default]
    Path,
    /// `Greeter.SayHello`, the name that erpc's `RPCServiceMethodMapper` produces.
    Rpc,
}

impl Names {
    /// Converts the name `package.Service/Method` to this form, in the group `prefix`.
    pub(super) fn write(self, name: &str, prefix: &str) -> String {
        let (service, method) = name.split_once('/').unwrap_or(("", name));
        let short = service.rsplit_once('.').map_or(service, |(_, short)| short);
        let group = |separator: &str| match prefix.trim_matches('/') {
            "" => String::new(),
            prefix => prefix.replace('/', separator) + separator,
        };
        match self {
            Names::Full => format!("/{}{service}/{method}", group("/")),
            Names::Path => format!("/{}{}/{}", group("/"), snake(short), snake(method)),
            Names::Rpc => format!("{}{short}.{method}", group(".")),
        }
    }
}

/// Finds a method by a name in any of these forms. The package may be missing if the rest is unambiguous. Groups are
/// parts of the package: `/v1/page/test` is `v1.page/test`, which may be an alias, or `Test` of `v1.Page`.
///
/// # Errors
/// `Unimplemented` for a name that matches no method, or more than one.
pub(super) fn find(table: &MethodTable, name: &str) -> Result<Found, Status> {
    look_up(table, name).or_else(|status| {
        let path = name.strip_prefix('/').unwrap_or(name);
        let parts = path.rsplit_once('/').or_else(|| path.rsplit_once('.'));
        let full = parts.map(|(service, method)| format!("{}/{method}", service.replace('/', ".")));
        table.refuse(full.as_deref().unwrap_or(path), Kind::Unary, status)
    })
}

fn look_up(table: &MethodTable, name: &str) -> Result<Found, Status> {
    let path = name.strip_prefix('/').unwrap_or(name);
    let Some((service, method)) = path.rsplit_once('/').or_else(|| path.rsplit_once('.')) else {
        let text = format!("{name:?} is not a method name; expected /service/method or Service.Method");
        return Err(Status::unimplemented(text));
    };
    let service = service.replace('/', ".");
    if let Some(found) = table.find(&format!("{service}/{method}")) {
        return Ok(found.into());
    }
    let is_service = |known: &str| {
        let (package, short) = known.rsplit_once('.').unwrap_or(("", known));
        let (wanted_package, wanted) = service.rsplit_once('.').unwrap_or(("", &service));
        (wanted == short || wanted == snake(short))
            && (wanted_package.is_empty() || wanted_package == package)
    };
    let services: Vec<_> = table.services().iter().filter(|known| is_service(known.name)).collect();
    let mut found = services.iter().flat_map(|known| {
        let methods = known.methods.iter().filter(|info| method == info.name || method == snake(info.name));
        methods.filter_map(|info| table.find(&format!("{}/{}", known.name, info.name)))
    });
    match (found.next(), found.next(), &services[..]) {
        (Some(found), None, _) => Ok(found.into()),
        (Some(one), Some(other), _) => {
            Err(table.ambiguous(name, &table.full_name(one), &table.full_name(other)))
        }
        (None, _, [known, ..]) => Err(table.unknown(&format!("{}/{method}", known.name))),
        (None, ..) => {
            let full = format!("{service}/{method}");
            table.undeclared(&full, Kind::Unary).ok_or_else(|| table.unknown(&full))
        }
    }
}

/// Converts the path of a push: `/news/flash` becomes `news/flash`, and `News.Flash` stays the same.
pub(super) fn of_push(path: &str) -> String {
    let slash = if path.contains('/') && !path.starts_with('/') { "/" } else { "" };
    format!("{slash}{path}")
}

/// Converts `AaBb` to `aa_bb` and `ABcXYz` to `abc_xyz`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            if after_small {
                snake.push('_');
            }
            after_small = false;
        } else if letter != '_' {
            after_small = true;
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MethodId;
    use crate::{MethodInfo, ServiceInfo};

    static HOME: ServiceInfo = ServiceInfo {
        name: "demo.v1.HomePage",
        methods: &[MethodInfo::new("SayHello", Kind::Unary), MethodInfo::new("ABcXYz", Kind::Unary)],
        descriptor: &[],
    };
    static OTHER: ServiceInfo = ServiceInfo {
        name: "old.HomePage",
        methods: &[MethodInfo::new("SayHello", Kind::Unary)],
        descriptor: &[],
    };

    #[test]
    fn methods_are_found_by_every_name_of_erpc() {
        let mut table = MethodTable::default();
        table.add(&HOME).unwrap();
        table.alias("v1.page/test", "demo.v1.HomePage/SayHello").unwrap();
        for name in [
            "/home_page/say_hello",
            "/demo/v1/home_page/say_hello",
            "/demo.v1.HomePage/SayHello",
            "demo.v1.HomePage/SayHello",
            "HomePage.SayHello",
            "demo.v1.HomePage.SayHello",
            "/v1/page/test",
        ] {
            assert_eq!(find(&table, name).ok(), Some(MethodId(0).into()), "{name}");
        }
        assert_eq!(find(&table, "/home_page/abc_xyz").ok(), Some(MethodId(1).into()));
        for (name, text) in [
            ("", "expected /service/method"),
            ("/heartbeat", "expected /service/method"),
            ("/home_page/nope", "demo.v1.HomePage has SayHello, ABcXYz"),
            ("/v2/home_page/say_hello", "unknown service v2.home_page"),
            ("/a/b", "unknown service a"),
        ] {
            assert!(find(&table, name).unwrap_err().message().contains(text), "{name}");
        }
        table.add(&OTHER).unwrap();
        let status = find(&table, "/home_page/say_hello").unwrap_err();
        let text = "demo.v1.HomePage/SayHello or old.HomePage/SayHello";
        assert!(status.message().contains(text), "{status}");
        assert_eq!(find(&table, "/old/home_page/say_hello").ok(), Some(MethodId(2).into()));
        table.accept_undeclared([]).unwrap();
        let found = find(&table, "/v2/home_page/say_hello").unwrap();
        assert_eq!(found.undeclared_name.as_deref(), Some("v2.home_page/say_hello"));
    }

    #[test]
    fn names_are_written_as_servers_have_them() {
        let write = |names: Names, prefix: &str| names.write("demo.v1.HomePage/SayHello", prefix);
        assert_eq!(write(Names::Path, ""), "/home_page/say_hello");
        assert_eq!(write(Names::Path, "/v1/api/"), "/v1/api/home_page/say_hello");
        assert_eq!(write(Names::Rpc, ""), "HomePage.SayHello");
        assert_eq!(write(Names::Rpc, "v1/api"), "v1.api.HomePage.SayHello");
        assert_eq!(write(Names::Full, ""), "/demo.v1.HomePage/SayHello");
    }
}
