//! Layers: the top-level modules of a crate import each other in one direction only.
//!
//! A module that can be read, tested and moved without the rest of its crate imports only modules below it. The rule
//! reads `crate::…` paths and the re-exports of `lib.rs`, so that `crate::Call` counts as an import of `call`. The
//! order of the crates is that of their dependencies.

use std::collections::{BTreeMap, BTreeSet};

use super::{Complaint, File};

/// Crates whose modules are checked for circles.
const CRATES: [&str; 20] = [
    "switchboard",
    "switchboard-adapter",
    "switchboard-auth",
    "switchboard-broker",
    "switchboard-bus",
    "switchboard-client",
    "switchboard-core",
    "switchboard-discovery",
    "switchboard-driver",
    "switchboard-fanout",
    "switchboard-guard",
    "switchboard-http",
    "switchboard-message",
    "switchboard-net",
    "switchboard-pattern",
    "switchboard-push",
    "switchboard-registry",
    "switchboard-server",
    "switchboard-socket",
    "switchboard-wire",
];

/// Crates of the product with those of its crates that each may depend on: a crate depends on lower ones only.
const DEPENDENCIES: [(&str, &[&str]); 18] = [
    ("switchboard-wire", &[]),
    ("switchboard-core", &["switchboard-wire"]),
    ("switchboard-net", &["switchboard-core", "switchboard-wire"]),
    ("switchboard-discovery", &["switchboard-core", "switchboard-wire"]),
    ("switchboard-auth", &["switchboard-core", "switchboard-net", "switchboard-wire"]),
    ("switchboard-fanout", &["switchboard-core", "switchboard-net", "switchboard-wire"]),
    ("switchboard-message", &["switchboard-core", "switchboard-wire"]),
    (
        "switchboard-adapter",
        &[
            "switchboard-core",
            "switchboard-fanout",
            "switchboard-message",
            "switchboard-net",
            "switchboard-wire",
        ],
    ),
    ("switchboard-guard", &["switchboard-auth", "switchboard-core", "switchboard-wire"]),
    ("switchboard-driver", &["switchboard-core", "switchboard-guard", "switchboard-net", "switchboard-wire"]),
    (
        "switchboard-http",
        &[
            "switchboard-auth",
            "switchboard-core",
            "switchboard-driver",
            "switchboard-guard",
            "switchboard-net",
            "switchboard-wire",
        ],
    ),
    (
        "switchboard-server",
        &[
            "switchboard-auth",
            "switchboard-core",
            "switchboard-discovery",
            "switchboard-driver",
            "switchboard-guard",
            "switchboard-http",
            "switchboard-net",
            "switchboard-wire",
        ],
    ),
    (
        "switchboard-client",
        &["switchboard-core", "switchboard-discovery", "switchboard-net", "switchboard-wire"],
    ),
    ("switchboard-broker", &["switchboard-core", "switchboard-message", "switchboard-wire"]),
    ("switchboard-bus", &["switchboard", "switchboard-core", "switchboard-message"]),
    ("switchboard-socket", &["switchboard-core", "switchboard-net", "switchboard-wire"]),
    (
        "switchboard-pattern",
        &["switchboard-core", "switchboard-message", "switchboard-socket", "switchboard-wire"],
    ),
    (
        "switchboard-push",
        &[
            "switchboard",
            "switchboard-adapter",
            "switchboard-broker",
            "switchboard-bus",
            "switchboard-core",
            "switchboard-fanout",
            "switchboard-message",
            "switchboard-wire",
        ],
    ),
];

/// Circles that stay, with the reason.
const CIRCLES: [(&str, &[&str]); 1] = [
    // A status carries metadata, metadata is refused with a status, and carries the refusal of an unknown method.
    ("switchboard-wire", &["metadata", "method", "status"]),
];

/// Where a module is imported: a file and a line.
type Site = (String, usize);

/// The imports of the modules of one crate, each with the place of the first.
type Imports = BTreeMap<String, BTreeMap<String, Site>>;

/// Circles of imports, and dependencies on higher crates.
pub(super) fn upward_imports(files: &[File]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for name in CRATES {
        let imports = imports(files, name);
        let known =
            |circle: &Vec<String>| CIRCLES.iter().any(|(krate, known)| *krate == name && known == circle);
        let circles = circles(&imports).into_iter().filter(|circle| !known(circle));
        complaints.extend(circles.map(|circle| complain(name, &imports, &circle)));
    }
    complaints.extend(files.iter().flat_map(dependencies_on_higher_crates));
    complaints
}

/// Dependencies of a manifest, but those of its tests, that DEPENDENCIES does not list; and the runtime in the wires.
fn dependencies_on_higher_crates(file: &File) -> Vec<Complaint> {
    let known = DEPENDENCIES.iter().find(|(name, _)| file.path == format!("crates/{name}/Cargo.toml"));
    let Some((name, allowed)) = known else { return Vec::new() };
    let (mut complaints, mut is_checked) = (Vec::new(), false);
    for (number, line) in (1..).zip(file.text.lines()) {
        if line.starts_with('[') {
            is_checked = line == "[dependencies]";
        }
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let is_ours = dependency == "switchboard" || dependency.starts_with("switchboard-");
        let is_runtime = *name == "switchboard-wire" && dependency == "tokio";
        if is_checked && (is_runtime || is_ours && !allowed.contains(&dependency)) {
            let message = format!("`{name}` depends on `{dependency}`, which is not below it");
            complaints.push(Complaint { path: file.path.clone(), line: number, message });
        }
    }
    complaints
}

fn imports(files: &[File], name: &str) -> Imports {
    let source = format!("crates/{name}/src/");
    let tests = test_modules(files, &source);
    let library = files.iter().find(|file| file.path == format!("{source}lib.rs"));
    let exports = library.map_or_else(BTreeMap::new, |file| exports(&file.text));
    let mut imports = Imports::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(path) = file.path.strip_prefix(&source) else { continue };
        let module = path.split(['/', '.']).next().unwrap_or_default().to_owned();
        if matches!(&*module, "lib" | "main" | "bin") || tests.iter().any(|test| path.starts_with(test)) {
            continue;
        }
        let found = imports.entry(module.clone()).or_default();
        for (line, target) in paths(&file.text) {
            let target = exports.get(&target).unwrap_or(&target);
            if *target != module {
                found.entry(target.clone()).or_insert_with(|| (file.path.clone(), line));
            }
        }
    }
    // Names that are no module are items of `lib.rs` itself, or of another crate.
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for targets in imports.values_mut() {
        targets.retain(|target, _| modules.contains(target));
    }
    imports
}

/// Paths of modules that exist in tests only, relative to the source.
fn test_modules(files: &[File], source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let Some(path) = file.path.strip_prefix(source) else { continue };
        let folder = match path.strip_suffix("mod.rs").or_else(|| path.strip_suffix("lib.rs")) {
            Some(folder) => folder.to_owned(),
            None => format!("{}/", path.trim_end_matches(".rs")),
        };
        let mut is_test = false;
        for line in file.text.lines() {
            let declared = line.split("mod ").nth(1).and_then(|rest| rest.strip_suffix(';'));
            if let Some(name) = declared.filter(|_| is_test) {
                found.push(format!("{folder}{name}.rs"));
                found.push(format!("{folder}{name}/"));
            }
            is_test = line.trim() == "#[cfg(test)]";
        }
    }
    found
}

/// The module of each name that the root of the crate re-exports.
fn exports(library: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in library.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((module, names)) = statement.split_once("::") else { continue };
        for name in names.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            found.insert(name.to_owned(), module.to_owned());
        }
    }
    found
}

/// The first segments after `crate::`, with their lines, before the unit tests of the file.
fn paths(text: &str) -> Vec<(usize, String)> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let code: String = text[..end]
        .split_inclusive('\n')
        .map(|line| if line.trim_start().starts_with("//") { "\n" } else { line })
        .collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.push((line, identifier(rest))),
            Some(list) => found.extend(members(list).into_iter().map(|name| (line, name))),
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The first segments of the members of a braced list, whose opening brace is before `list`.
fn members(list: &str) -> Vec<String> {
    let (mut depth, mut found, mut start) = (1, Vec::new(), 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && letter == ',') {
            found.push(identifier(list[start..at].trim_start()));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Modules that import each other, directly or through others; one list per circle.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (module, reachable(imports, module))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, reached) in &reach {
        if !reached.contains(module) || found.iter().flatten().any(|known| known == *module) {
            continue;
        }
        let circle = reached.iter().filter(|other| reach[**other].contains(module));
        found.push(circle.map(|other| (*other).clone()).collect());
    }
    found
}

fn reachable<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for target in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(target) {
                open.push(target);
            }
        }
    }
    reached
}

fn complain(name: &str, imports: &Imports, circle: &[String]) -> Complaint {
    let inside = |module: &String| imports[module].iter().filter(|(target, _)| circle.contains(target));
    let edges: Vec<String> = circle
        .iter()
        .flat_map(|module| {
            inside(module).map(move |(target, (path, line))| format!("{module} → {target} ({path}:{line})"))
        })
        .collect();
    let message = format!("modules import each other in a circle: {}", edges.join(", "));
    Complaint { path: format!("crates/{name}/src/lib.rs"), line: 0, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn circles_are_found_through_re_exports_and_braces() {
        let files = [
            file(
                "crates/switchboard-wire/src/lib.rs",
                "mod a;\nmod b;\nmod c;\npub use a::{Apple, Apricot};\n",
            ),
            file("crates/switchboard-wire/src/a.rs", "use crate::{b::Berry, c::{self, C}};\n"),
            file("crates/switchboard-wire/src/b.rs", "// crate::c is mentioned\nuse crate::Apricot;\n"),
            file(
                "crates/switchboard-wire/src/c.rs",
                "#[cfg(test)]\nmod turns;\nfn f() {}\n#[cfg(test)]\nmod tests {\nuse crate::a;\n}\n",
            ),
            file("crates/switchboard-wire/src/c/turns.rs", "use crate::a::Apple;\n"),
        ];
        let complaints = upward_imports(&files);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        let message = &complaints[0].message;
        assert!(message.contains("a → b (crates/switchboard-wire/src/a.rs:1)"), "{message}");
        assert!(message.contains("b → a (crates/switchboard-wire/src/b.rs:2)"), "{message}");
        assert!(!message.contains("→ c"), "{message}");
    }

    #[test]
    fn crates_depend_on_lower_ones_only() {
        let client = "[dependencies]\nswitchboard-core.workspace = true\nswitchboard-auth.workspace = true\n\
                      [dev-dependencies]\nswitchboard.workspace = true\n";
        let files = [
            file("crates/switchboard-client/Cargo.toml", client),
            file("crates/switchboard-wire/Cargo.toml", "[dependencies]\ntokio = { workspace = true }\n"),
        ];
        let messages: Vec<_> =
            upward_imports(&files).into_iter().map(|complaint| complaint.to_string()).collect();
        assert_eq!(messages.len(), 2, "{messages:#?}");
        assert!(
            messages.iter().any(|text| text.contains("Cargo.toml:3") && text.contains("`switchboard-auth`"))
        );
        assert!(messages.iter().any(|text| text.contains("depends on `tokio`")));
    }
}
