//! Generated code and error messages for `.fbs` files.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Workspace, has};

fn error(name: &str, content: &str) -> String {
    let workspace = Workspace::new(name);
    let file = workspace.file("test.fbs", content);
    workspace.emit_idl(switchboard_build::flatbuffers(file)).unwrap_err().to_string()
}

#[test]
fn types_and_services_of_a_file() {
    let workspace = Workspace::new("fbs_types_and_services_of_a_file");
    let file = workspace.file(
        "demo.fbs",
        r#"
namespace demo.v1;
attribute "switchboard_spawn";
enum Color : byte { Red = 0, Green, Blue = 2 }
struct Vec3 { x: float; tall: double; flag: bool; }
/// Whom
/// it concerns.
table Weapon { name: string (required); damage: short = 10; }
table Note {}
union Equipment { Weapon, other: Note }
table Monster {
  pos: Vec3;
  hp: short = 100;
  color: Color = Blue;
  inventory: [ubyte];
  weapons: [Weapon];
  equipped: Equipment;
  old: int (deprecated);
  firstName: string;
  friend: Monster;
  bag: [Equipment];
}
root_type Monster;
file_identifier "MONS";
rpc_service Store {
  /// Finds one.
  Retrieve(Note): Monster (streaming: "none", idempotent);
  List(Note): Monster (streaming: "server", "switchboard_spawn");
}
"#,
    );
    workspace.emit_idl(switchboard_build::flatbuffers(file)).unwrap();
    has(
        &workspace.generated("demo.v1.rs"),
        &[
            "/// Whom /// it concerns.",
            "pub const GREEN: Self = Self(1);",
            "const SIZE: usize = 24;",
            "const ALIGN: usize = 8;",
            "pub name: ::std::string::String",
            r#"table.inline(1).map_err(|error| error.in_field("damage"))?.unwrap_or(10)"#,
            r#"Malformed::missing("Weapon.name")"#,
            "Other(::std::boxed::Box<Note>)",
            "pub friend: ::core::option::Option<::std::boxed::Box<Monster>>",
            r#"#[serde(rename = "firstName")]"#,
            // The tag of the union has number 5, its value 6, the deprecated field 7.
            r#"equipped: table.union(6).map_err(|error| error.in_field("equipped"))?"#,
            r#"first_name: table.referred(8).map_err(|error| error.in_field("firstName"))?"#,
            "pub bag: ::std::vec::Vec<Equipment>",
            "out.point_to_unions(slot_10, slot_11, &self.bag)",
            r#"table.unions(11).map_err(|error| error.in_field("bag"))?.unwrap_or_default()"#,
            "color: Color::BLUE",
            "fn retrieve(&self, request: Note, cx: &::switchboard::Cx)",
            r#"MethodInfo::new("Retrieve", ::switchboard::Kind::Unary).idempotency(::switchboard::Idempotency::Idempotent)"#,
            r#"MethodInfo::new("List", ::switchboard::Kind::ServerStream).spawn()"#,
            "channel.codec(::switchboard::Codec::FlatBuffers)",
        ],
    );
}

#[test]
fn files_that_include_each_other_meet_by_relative_paths() {
    let workspace = Workspace::new("fbs_files_that_include_each_other_meet_by_relative_paths");
    workspace.file("common/shared.fbs", "namespace common.v1; table Note { text: string; }");
    workspace.file("bare.fbs", "table Bare { text: string; }");
    let file = workspace.file(
        "main.fbs",
        "include \"shared.fbs\"; include \"bare.fbs\";\n\
         table Both { note: common.v1.Note; bare: Bare; }\n\
         rpc_service Notes { Echo(common.v1.Note): Both; }",
    );
    let folder = file.parent().unwrap().join("common");
    workspace.emit_idl(switchboard_build::flatbuffers(&file).include(folder)).unwrap();
    has(
        &workspace.generated("main.rs"),
        &[
            "note: ::core::option::Option<::std::boxed::Box<super::common::v1::Note>>",
            "bare: ::core::option::Option<::std::boxed::Box<super::bare::Bare>>",
        ],
    );
    has(&workspace.generated("_all.rs"), &["bare.rs", "common.v1.rs", "main.rs"]);
}

#[test]
fn errors_name_their_line() {
    for (name, content, parts) in [
        ("no_type", "table A {\n b: Nope; }", &[":2: Nope is not defined"][..]),
        ("twice", "table A { a: int; a: int; }", &[":1: a is defined twice"]),
        ("ids", "table A { a: int (id: 1);\n b: int (id: 1); }", &[":2: b has the id of a"]),
        (
            "tags",
            "table T {}\nunion U { T }\ntable A { a: int (id: 0);\n b: [U] (id: 1); }",
            &[":4: b has the id of a"],
        ),
        ("unclosed", "table A {\n a: int;", &["is missing before the end of the file"]),
        ("default", "table A { a: byte = 300; }", &["does not fit the type of a"]),
        ("default_member", "enum E : byte { X }\ntable A { a: E = Y; }", &[":2:", "does not fit"]),
        ("behind_the_last", "enum E : long { A = 9223372036854775807, B }", &["there is no number for B"]),
        ("default_text", "table A { a: string = \"x\"; }", &["only numbers and enums can have"]),
        ("in_struct", "struct A { a: string; }", &["make it a table"]),
        ("array", "table A { a: [int:3]; }", &["make it a vector"]),
        ("nested", "table A { a: [[int]]; }", &["a vector of vectors"]),
        (
            "unions",
            "table T {}\nunion U { T }\ntable A { a: [U] (id: 0); }",
            &["one more than that of its tag"],
        ),
        ("union_of_structs", "struct S { a: int; }\nunion U { S }", &["S is not a table"]),
        ("circle", "struct A { a: B; }\nstruct B { a: A; }", &["contains itself"]),
        ("rpc", "rpc_service S { Do(Nope): Nope; }", &["Nope is not defined"]),
        (
            "streaming",
            "table T {}\nrpc_service S { Do(T): T (streaming: \"odd\"); }",
            &["none, server, client"],
        ),
        ("methods", "table T {}\nrpc_service S { Do(T): T;\n do(T): T; }", &[":3: methods Do and do"]),
        ("include", "include \"gone.fbs\";", &[":1: gone.fbs is not there", ".include("]),
        ("names", "table SClient {}\nrpc_service S { Do(SClient): SClient; }", &["two definitions generate"]),
        ("enum_type", "enum E : float { A }", &["a type of whole numbers"]),
        ("word", "monster A {}", &["`monster` begins no definition"]),
    ] {
        let text = error(&format!("fbs_{name}"), content);
        for part in parts {
            assert!(text.contains(part), "{name}: {text}");
        }
    }
}
