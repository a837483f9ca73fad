//! Generated code and error messages for `.thrift` files.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Workspace, has};

fn error(name: &str, content: &str) -> String {
    let workspace = Workspace::new(name);
    let file = workspace.file("test.thrift", content);
    workspace.emit_idl(switchboard_build::thrift(file)).unwrap_err().to_string()
}

#[test]
fn a_service_or_an_exception_may_have_the_name_of_the_type_parameter() {
    let workspace = Workspace::new("a_service_or_an_exception_may_have_the_name_of_the_type_parameter");
    for (package, schema) in [
        ("service", "service Handler { void a() }"),
        ("exception", "exception Handler {} service S { void a() throws (1: Handler h) }"),
    ] {
        let file = workspace.file(&format!("{package}.thrift"), schema);
        workspace.emit_idl(switchboard_build::thrift(file)).unwrap();
        has(&workspace.generated(&format!("{package}.rs")), &["Server<SwitchboardHandler>"]);
    }
}

#[test]
fn types_and_services_of_a_file() {
    let workspace = Workspace::new("types_and_services_of_a_file");
    let file = workspace.file(
        "demo.thrift",
        r#"
namespace rs demo.v1
// A comment, # another, /* and one */
# that ends with its line
/** Whom
 *  it concerns. */
struct Person { 1: required string fullName; 2: optional i32 age = 7, 3: Person parent; 4: double weight }
union Choice { 1: i32 number, 2: Person person }
exception Gone { 1: string why } (switchboard.code = "not_found")
enum Kind { A, B = 5, C }
const Kind BEST = Kind.C
typedef map<i32, list<Kind>> Kinds
service Base { oneway void note(1: string text) }
service People extends Base {
  /** Finds one. */
  Person find(1: string fullName, 2: Kinds kinds) throws (1: Gone gone) (switchboard.read_only);
  void self();
}
"#,
    );
    workspace.emit_idl(switchboard_build::thrift(file)).unwrap();
    has(
        &workspace.generated("demo.v1.rs"),
        &[
            "/// Whom /// it concerns.",
            "pub full_name: ::std::string::String",
            r#"#[serde(rename = "fullName")]"#,
            "pub age: ::core::option::Option<i32>",
            "pub parent: ::core::option::Option<::std::boxed::Box<Person>>",
            "pub enum Choice",
            "Person(Person)",
            "::switchboard::Code::NotFound",
            r#"const NAME: &'static str = "demo.v1.Gone";"#,
            "pub const C: Self = Self(6);",
            "pub const BEST: Kind = Kind(6);",
            "pub type Kinds = ::std::collections::BTreeMap<i32, ::std::vec::Vec<Kind>>;",
            "pub trait People:",
            "fn note(&self, text: ::std::string::String, cx: &::switchboard::Cx",
            r#"MethodInfo::new("find", ::switchboard::Kind::Unary).idempotency(::switchboard::Idempotency::NoSideEffects)"#,
            "fn self_(&self, cx: &::switchboard::Cx",
            "Throw::new::<Gone>(1)",
        ],
    );
}

#[test]
fn files_that_include_each_other_meet_by_relative_paths() {
    let workspace = Workspace::new("files_that_include_each_other_meet_by_relative_paths");
    workspace.file("common/shared.thrift", "namespace * common.v1\nstruct Note { 1: string text }");
    let file = workspace.file(
        "main.thrift",
        "include \"shared.thrift\"\nservice Notes { shared.Note echo(1: list<shared.Note> notes) }",
    );
    let folder = file.parent().unwrap().join("common");
    workspace.emit_idl(switchboard_build::thrift(&file).include(folder)).unwrap();
    has(&workspace.generated("main.rs"), &["super::common::v1::Note"]);
    has(&workspace.generated("_all.rs"), &["common.v1.rs", "main.rs"]);
}

#[test]
fn errors_name_their_line() {
    for (name, content, parts) in [
        ("no_type", "struct A {\n 1: Nope b }", &[":2: Nope is not a type"][..]),
        ("twice", "struct A { 1: i32 a, 1: i32 b }", &[":1: b has the number or name of a"]),
        ("unclosed", "struct A {\n 1: i32 a", &["is missing before the end of the file"]),
        ("double_key", "struct D { 1: double d }\nstruct A { 1: set<D> s }", &["doubles have no order"]),
        ("oneway", "service S { oneway i32 a() }", &["oneway method a cannot return"]),
        (
            "throws",
            "struct A {}\nservice S { void a() throws (1: A a) }",
            &[":2: only exceptions are thrown"],
        ),
        ("default", "struct A { 1: i8 a = 300 }", &["the value does not fit its type"]),
        ("constant", "struct A { 1: i8 a = NOPE }", &["NOPE has no value"]),
        ("extends", "service S extends T {}", &["S extends an unknown service"]),
        ("circle", "service S extends T {}\nservice T extends S {}", &["extends itself"]),
        ("typedefs", "typedef A B\ntypedef B A\nstruct S { 1: A a }", &["a typedef that refers to itself"]),
        ("include", "include \"gone.thrift\"", &[":1: gone.thrift is not there", ".include("]),
        ("names", "struct SClient {}\nservice S {}", &["two definitions generate `SClient`"]),
        ("code", "exception E {} (switchboard.code = \"odd\")", &["\"odd\" is not a status code"]),
        ("sign", "struct A { 1: i32 a $ }", &["unexpected character '$'"]),
        ("empty_union", "union U {}", &["union U has no member"]),
    ] {
        let text = error(&format!("thrift_{name}"), content);
        for part in parts {
            assert!(text.contains(part), "{name}: {text}");
        }
    }
}
