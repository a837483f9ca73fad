//! Compares the trie with a search through all templates, one after the other.

use super::*;

const SOURCE: &str = r#"
    syntax = "proto3";
    package a;
    service S { rpc M(Q) returns (Q); }
    message Q { string x = 1; string y = 2; string z = 3; }
"#;

struct Source;

impl protox::file::FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
        protox::file::File::from_source(name, SOURCE)
    }
}

static SERVICE: std::sync::LazyLock<switchboard_wire::ServiceInfo> = std::sync::LazyLock::new(|| {
    let mut compiler = protox::Compiler::with_file_resolver(Source);
    compiler.open_file("a.proto").unwrap();
    let descriptor = compiler.encode_file_descriptor_set().leak();
    switchboard_wire::ServiceInfo { name: "a.S", methods: &[], descriptor }
});

/// Returns the routes of these templates; a template that matches the same paths as an earlier one is left out.
fn routes(templates: impl IntoIterator<Item = String>) -> Routes {
    let schema = Schema::of(&[&*SERVICE]).unwrap();
    let mut routes = Routes::default();
    for path in templates {
        let rule = HttpRule { verb: "GET", path: path.leak(), body: "", response_body: "" };
        let route = Route::new(MethodId(0), "a.S/M".to_owned(), Kind::Unary, rule, &schema).unwrap();
        let _ = routes.add(route);
    }
    routes
}

/// SplitMix64, as in the property tests of the wires.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn template(&mut self) -> String {
        let mut names = ["x", "y", "z"].into_iter();
        let mut template = String::new();
        for _ in 0..=self.below(4) {
            let name = names.clone().next();
            let piece = match (self.below(7), name) {
                (0, Some(name)) => format!("/{{{name}}}"),
                (1, Some(name)) => format!("/{{{name}=a/*}}"),
                (2, _) => "/*".to_owned(),
                (3..5, _) => "/a".to_owned(),
                _ => "/b".to_owned(),
            };
            if piece.contains('{') {
                names.next();
            }
            template += &piece;
        }
        match (self.below(6), names.next()) {
            (0, Some(name)) => template + &format!("/{{{name}=**}}"),
            (1, _) => template + "/**",
            (2, _) => template + ":v",
            _ => template,
        }
    }

    fn path(&mut self) -> String {
        let pieces = ["a", "b", "c", "a%2Fb", "%61", "", "a:v", "b:w", "%"];
        let length = self.below(6);
        "/".to_owned() + &(0..length).map(|_| pieces[self.below(pieces.len())]).collect::<Vec<_>>().join("/")
    }
}

/// Returns how well a template matches, less is better; `None` if it does not.
fn rank(template: &Template, path: &str) -> Option<Vec<u8>> {
    let mut segments: Vec<&str> = path[1..].split('/').collect();
    if path == "/" {
        segments.clear();
    }
    let mut rank = vec![u8::from(template.verb.is_none())];
    if let Some(verb) = &template.verb {
        let last = segments.last_mut()?;
        let (before, after) = last.rsplit_once(':')?;
        if after != verb {
            return None;
        }
        *last = before;
    }
    let mut segments = segments.into_iter();
    for wanted in &template.segments {
        match wanted {
            Segment::Rest => {
                rank.push(2);
                return Some(rank);
            }
            Segment::Any => {
                segments.next().filter(|segment| !segment.is_empty())?;
                rank.push(1);
            }
            Segment::Literal(text) => {
                let segment = segments.next()?;
                let decoded = percent::decode(segment, false).unwrap_or_else(|_| segment.to_owned());
                if decoded != *text {
                    return None;
                }
                rank.push(0);
            }
        }
    }
    segments.next().is_none().then_some(rank)
}

#[test]
fn the_best_of_all_matching_templates_is_found() {
    let (mut random, mut matched) = (Random(1), 0);
    for _ in 0..200 {
        let count = 1 + random.below(8);
        let routes = routes((0..count).map(|_| random.template()));
        for _ in 0..50 {
            let path = random.path();
            let best = routes.routes.iter().filter_map(|route| rank(&route.template, &path)).min();
            let found = match routes.find(&Method::GET, &path) {
                Found::Route(index, segments) => {
                    let route = &routes.routes[index];
                    let escapes_are_right = !path.contains("%/") && !path.ends_with('%');
                    assert!(route.texts(&segments).is_ok() || !escapes_are_right, "{path}");
                    matched += 1;
                    rank(&route.template, &path)
                }
                Found::Nothing => None,
                Found::Verbs(_) => panic!("{path}: the templates have only one verb"),
            };
            let templates: Vec<_> = routes.routes.iter().map(|route| route.rule.path).collect();
            assert_eq!(found, best, "{path} in {templates:?}");
        }
    }
    assert!(matched > 1000, "{matched} matches are too few");
}

#[test]
fn verbs_of_all_matching_templates_are_listed() {
    let mut routes = routes(["/a/{x}".to_owned(), "/a/b".to_owned()]);
    let schema = Schema::of(&[&*SERVICE]).unwrap();
    let rule = HttpRule { verb: "PUT", path: "/a/b", body: "*", response_body: "" };
    routes.add(Route::new(MethodId(0), "a.S/M".to_owned(), Kind::Unary, rule, &schema).unwrap()).unwrap();
    let rule = HttpRule { verb: "*", path: "/any", body: "*", response_body: "" };
    routes.add(Route::new(MethodId(0), "a.S/M".to_owned(), Kind::Unary, rule, &schema).unwrap()).unwrap();
    let found = |method: &Method, path| match routes.find(method, path) {
        Found::Route(index, _) => routes.routes[index].rule.path.to_owned(),
        Found::Verbs(verbs) => verbs.join(" "),
        Found::Nothing => "nothing".to_owned(),
    };
    for (method, path, expected) in [
        (Method::PUT, "/a/b", "/a/b"),
        (Method::HEAD, "/a/c", "/a/{x}"),
        (Method::DELETE, "/a/b", "GET PUT"),
        (Method::PUT, "/a/c", "GET"),
        (Method::TRACE, "/any", "/any"),
        (Method::GET, "/", "nothing"),
        (Method::GET, "", "nothing"),
        (Method::OPTIONS, "*", "nothing"),
    ] {
        assert_eq!(found(&method, path), expected, "{method} {path}");
    }
}

#[test]
fn any_query_and_body_lead_to_json_or_an_error() {
    let schema = Schema::of(&[&*SERVICE]).unwrap();
    let pieces =
        ["x", "y", "zz", "x.y", ".", "=", "&", "%", "%41", "+", "\u{e9}", "{", "}", "\"", ":", "[", "1", ","];
    let (mut random, mut good) = (Random(7), 0);
    for round in 0..5000 {
        let mut text =
            || (0..random.below(12)).map(|_| pieces[random.below(pieces.len())]).collect::<Vec<_>>().concat();
        let (query, body) = (text(), text());
        let rule = HttpRule { verb: "PUT", path: "/{x}", body: ["", "y", "*"][round % 3], response_body: "" };
        let route = Route::new(MethodId(0), "a.S/M".to_owned(), Kind::Unary, rule, &schema).unwrap();
        let parts = super::super::message::Parts {
            variables: vec!["v".to_owned()],
            query: Some(&query),
            content_type: None,
            body: body.into(),
        };
        if let Ok(message) = super::super::message::assemble(&schema, &route, parts, round % 2 == 0) {
            let message: serde_json::Value = serde_json::from_slice(&message).unwrap();
            assert_eq!(message["x"], "v", "values in the path take precedence");
            good += 1;
        }
    }
    assert!(good > 500, "{good} valid requests are too few");
}
