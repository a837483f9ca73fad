//! Names of methods as erpc has them.

use crate::{Kind, MethodId, MethodTable, Status};

/// How a client calls the method `SayHello` of the service `demo.Greeter`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Names {
    /// `/demo.Greeter/SayHello`, for servers of ours that have several services of a name.
    Full,
    /// `/greeter/say_hello`, as erpc names the methods of a struct unless it was told otherwise.
    #[default]
    Path,
    /// `Greeter.SayHello`, as its `RPCServiceMethodMapper` does.
    Rpc,
}

impl Names {
    /// The name of a method that is `package.Service/Method` here, in the group `prefix`.
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

/// The method with a name of any of these kinds; the package may be missing where the rest is clear. Groups are parts
/// of the package: `/v1/page/test` is `v1.page/test`, which may be an alias, or `Test` of `v1.Page`.
///
/// # Errors
/// `Unimplemented` for a name that means no method, or more than one.
pub(super) fn find(table: &MethodTable, name: &str) -> Result<MethodId, Status> {
    let path = name.strip_prefix('/').unwrap_or(name);
    let Some((service, method)) = path.rsplit_once('/').or_else(|| path.rsplit_once('.')) else {
        let text = format!("{name:?} is no method: expected /service/method or Service.Method");
        return Err(Status::unimplemented(text));
    };
    let service = service.replace('/', ".");
    if let Some(found) = table.find(&format!("{service}/{method}")) {
        return Ok(found);
    }
    let is_service = |known: &str| {
        let (package, short) = known.rsplit_once('.').unwrap_or(("", known));
        let (asked_package, asked) = service.rsplit_once('.').unwrap_or(("", &service));
        (asked == short || asked == snake(short)) && (asked_package.is_empty() || asked_package == package)
    };
    let services: Vec<_> = table.services().iter().filter(|known| is_service(known.name)).collect();
    let mut found = services.iter().flat_map(|known| {
        let methods = known.methods.iter().filter(|info| method == info.name || method == snake(info.name));
        methods.filter_map(|info| table.find(&format!("{}/{}", known.name, info.name)))
    });
    match (found.next(), found.next(), &services[..]) {
        (Some(found), None, _) => Ok(found),
        (Some(one), Some(other), _) => Err(Status::unimplemented(format!(
            "{name} may be {} or {}: say which by its package",
            table.full_name(one),
            table.full_name(other)
        ))),
        (None, _, [known, ..]) => Err(table.unknown(&format!("{}/{method}", known.name))),
        (None, ..) => {
            let full = format!("{service}/{method}");
            table.learn(&full, Kind::Unary).ok_or_else(|| table.unknown(&full))
        }
    }
}

/// The name of a push that has this path here: `/news/flash` for `news/flash`, and `News.Flash` for itself.
pub(super) fn of_push(path: &str) -> String {
    let slash = if path.contains('/') && !path.starts_with('/') { "/" } else { "" };
    format!("{slash}{path}")
}

/// `AaBb` as `aa_bb` and `ABcXYz` as `abc_xyz`.
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
    fn methods_are_found_by_every_name_that_erpc_gives_them() {
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
            assert_eq!(find(&table, name).ok(), Some(MethodId(0)), "{name}");
        }
        assert_eq!(find(&table, "/home_page/abc_xyz").ok(), Some(MethodId(1)));
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
        let text = "demo.v1.HomePage/SayHello or old.HomePage/SayHello: say which";
        assert!(status.message().contains(text), "{status}");
        assert_eq!(find(&table, "/old/home_page/say_hello").ok(), Some(MethodId(2)));
        table.take_others([]).unwrap();
        let learned = find(&table, "/v2/home_page/say_hello").unwrap();
        assert_eq!(table.full_name(learned), "v2.home_page/say_hello");
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
