mod both_ways;
mod hostile;

use super::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use switchboard::Code;

const COMPACT: Look = Look::for_people(true, false);

fn definitions() -> Definitions {
    of_file("echo.fbs")
}

fn of_file(name: &str) -> Definitions {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fbs").join(name);
    Definitions(Arc::new(Interface::read(&[file], &[]).unwrap()))
}

/// Returns a method with all types in its request.
fn kinds() -> Procedure {
    of_file("kinds.fbs").procedure("Mirror/Show").unwrap()
}

/// Returns a method that replies with its request.
fn say() -> Procedure {
    definitions().procedure("Echo/Say").unwrap()
}

/// Converts a message to a table and back.
fn echoed(message: &Value) -> Result<Value, String> {
    let procedure = say();
    let bytes = procedure.write(message)?;
    let text = procedure.read(&bytes, COMPACT).map_err(|status| status.to_string())?;
    Ok(serde_json::from_str(&text).unwrap())
}

/// Returns a message with every field.
fn full() -> Value {
    json!({
        "text": "h\u{e4}y", "number": i64::MIN, "none": 0, "flag": false, "mood": "Calm", "marks": "Read Kept",
        "at": {"id": 1, "at": -0.25, "label": [1, 65535], "mood": "Loud"},
        "path": [
            {"id": 2, "at": 0.5, "label": [0, 0], "mood": "Calm"},
            {"id": 3, "at": 1e300, "label": [7, 8], "mood": "Loud"},
        ],
        "bytes": [0, 255, 7], "numbers": [1, u64::MAX], "tags": [{"key": "a"}, {"key": "", "weight": 0.1}],
        "words": ["x", ""], "moods": ["Calm", "Loud"], "manner_type": "Shout", "manner": {"times": 3},
        "next": {"text": "inner"}, "real": 1e300,
        "manners_type": ["low", "Shout"], "manners": [{"to": "x"}, {}],
    })
}

/// Output of flatc 2.0.8 for the message.
const FULL: &str = "\
    300000002c006400080050000c00040005000600100028002c003000340038003c000700400000004400580048004c002c00000000001101\
    5c010000000000000100000000000000000000000000d0bf0100ffff0300000004010000f8000000dc0000009c0000007c00000070000000\
    640000004c000000400000001800000000000000000000809c7500883ce4377e000000000200000010000000080000000400040004000000\
    82ffffff04000000010000007800000002000000020100009affffff0400000005000000696e6e6572000000aeffffff0300000002000000\
    000300000200000010000000040000000000000000000000010000007800000002000000280000000c00000008000c000400080008000000\
    08000000cdcccc3d00000000000006000800040006000000040000000100000061000000020000000100000000000000ffffffffffffffff\
    000000000300000000ff0700020000000200000000000000000000000000e03f000000000000000003000000000000009c7500883ce4377e\
    0700080003000000000000000400000068c3a47900000000";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn every_type_is_written_as_it_is_read() {
    assert_eq!(echoed(&full()).as_ref(), Ok(&full()));
    assert_eq!(echoed(&json!({})), Ok(json!({})));
    for (said, read) in [
        (json!({"number": -7, "flag": true, "mood": "Loud", "real": 0}), json!({})),
        (json!({"mood": "Mood.Calm", "marks": 17}), json!({"mood": "Calm", "marks": "Read Kept"})),
        (json!({"mood": 77, "marks": 2}), json!({"mood": 77, "marks": 2})),
        (json!({"bytes": "AP8=", "none": null}), json!({"bytes": [0, 255]})),
        (json!({"manner_type": 2, "manner": {}}), json!({"manner_type": "low", "manner": {}})),
        (json!({"manner_type": "NONE", "manner": null}), json!({})),
        (json!({"real": "-Infinity"}), json!({"real": "-Infinity"})),
        (json!({"at": {"at": 1}}), json!({"at": {"id": 0, "at": 1.0, "label": [0, 0], "mood": "Calm"}})),
        (
            json!({"tags": [], "manners_type": [], "manners": []}),
            json!({"tags": [], "manners_type": [], "manners": []}),
        ),
    ] {
        assert_eq!(echoed(&said), Ok(read), "{said}");
    }
}

#[test]
fn output_of_flatc_is_read() {
    let text = say().read(&bytes(FULL), COMPACT).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), full());
    // In the order of the file.
    assert!(
        text.starts_with(r#"{"text":"häy","number":-9223372036854775808,"none":0,"flag":false"#),
        "{text}"
    );
    let note = definitions().procedure("fbs.echo.Echo/Note").unwrap();
    let pretty =
        note.read(&bytes("0c000000000006000800040006000000ffffffff"), Look::for_people(false, false));
    assert_eq!(pretty.unwrap(), "{\n  \"times\": -1\n}");
    // A table without fields has defaults.
    let nothing = bytes("080000000400040004000000");
    assert_eq!(note.read(&nothing, COMPACT).unwrap(), "{}");
    assert_eq!(note.read(&nothing, Look::for_people(true, true)).unwrap(), r#"{"times":1}"#);
}

#[test]
fn replies_look_as_json_does() {
    let bytes = say()
        .write(&json!({"numbers": [1, 2], "tags": [{"key": "a\"b"}], "path": [{}], "words": []}))
        .unwrap();
    let text = say().read(&bytes, Look::for_people(false, false)).unwrap();
    let expected = r#"{
  "path": [
    {
      "id": 0,
      "at": 0.0,
      "label": [0, 0],
      "mood": "Calm"
    }
  ],
  "numbers": [1, 2],
  "tags": [
    {
      "key": "a\"b"
    }
  ],
  "words": []
}"#;
    assert_eq!(text, expected);
}

#[test]
fn errors_name_the_field() {
    for (message, expected) in [
        (json!([]), "expected an object, fbs.echo.Message, and not []"),
        (json!({"txt": ""}), "fbs.echo.Message has no \"txt\"; did you mean text?"),
        (json!({"old": ""}), "fbs.echo.Message has no \"old\""),
        (json!({"number": 1.5}), "field number: expected a whole number of 64 bits and not 1.5"),
        (json!({"numbers": [1, -1]}), "field numbers[1]: expected a whole number of 64 bits and not -1"),
        (json!({"mood": "Lod"}), "field mood: fbs.echo.Mood has no Lod; did you mean Loud?"),
        (json!({"mood": 128}), "field mood: expected a whole number of 8 bits and not 128"),
        (json!({"bytes": "a b"}), "field bytes: the text is not base64"),
        (json!({"tags": [{}]}), "field tags[0]: fbs.echo.Tag has no key, which is required"),
        (
            json!({"tags": [{"key": "", "weight": 1e300}]}),
            "field tags[0].weight: expected a number that 32 bits hold",
        ),
        (json!({"at": {"label": [1]}}), "field at.label: expected a list of 2 and not [1]"),
        (json!({"next": {"next": {"text": 5}}}), "field next.next.text: expected a text and not 5"),
        (json!({"manner": {}}), "has manner and no manner_type: Shout, low"),
        (json!({"manner_type": "Shout"}), "has manner_type and no manner"),
        (
            json!({"manner_type": "Shot", "manner": {}}),
            "field manner_type: fbs.echo.Manner has no Shot; did you mean Shout?",
        ),
        (json!({"manners_type": ["low"], "manners": []}), "has 0 in manners and 1 in manners_type"),
        (
            json!({"manners_type": ["low", 3], "manners": [{}, {}]}),
            "field manners_type[1]: expected the name of a member",
        ),
    ] {
        let error = echoed(&message).unwrap_err();
        assert!(error.contains(expected), "{message}: {error}");
    }
}

#[test]
fn bad_bytes_are_an_error_and_no_panic() {
    let (procedure, good) = (say(), bytes(FULL));
    for at in 0..good.len() {
        for value in [0, 1, 0x7F, 0xFF] {
            let mut bad = good.clone();
            bad[at] = value;
            // The bytes are read or refused.
            let _ = procedure.read(&bad, COMPACT);
        }
        assert!(at > good.len() - 8 || procedure.read(&good[..at], COMPACT).is_err(), "{at}");
    }
    let shared_vector = {
        // A vector of 30,000 words, all of them one text of 10,000 bytes.
        let words: Vec<_> = (0..30_000).map(|_| "").collect();
        let long = "a".repeat(10_000);
        let mut bytes = procedure.write(&json!({"words": words, "next": {"text": long}})).unwrap().to_vec();
        let text = bytes.windows(long.len()).position(|window| window == long.as_bytes()).unwrap() - 4;
        let count = 30_000u32.to_le_bytes();
        let vector = bytes.windows(4).position(|window| window == count).unwrap() + 4;
        for item in 0..30_000 {
            let at = vector + 4 * item;
            bytes[at..at + 4].copy_from_slice(&((text - at) as u32).to_le_bytes());
        }
        bytes
    };
    let tagless = {
        let mut bytes =
            procedure.write(&json!({"manners_type": ["low", "low"], "manners": [{}, {}]})).unwrap().to_vec();
        let tags = bytes.windows(6).position(|window| window == [2, 0, 0, 0, 2, 2]).unwrap();
        bytes[tags] = 1;
        bytes
    };
    // The text "bad" becomes one that is not UTF-8.
    let with_bad_text = |value: Value| {
        let mut bytes = procedure.write(&value).unwrap().to_vec();
        let at = bytes.windows(3).position(|window| window == b"bad").unwrap();
        bytes[at] = 0xFF;
        bytes
    };
    let in_list = with_bad_text(json!({"tags": [{"key": "good"}, {"key": "bad"}]}));
    let in_words = with_bad_text(json!({"next": {"words": ["good", "good", "bad"]}}));
    let in_union = with_bad_text(json!({"manners_type": ["low"], "manners": [{"to": "bad"}]}));
    let unnamed = bytes("080000000400040004000000");
    let tag = Procedure {
        method: Method {
            reply: procedure.interface.tables.iter().position(|table| table.name == "fbs.echo.Tag").unwrap(),
            ..procedure.method.clone()
        },
        ..procedure.clone()
    };
    for (procedure, bytes, expected) in [
        (&procedure, shared_vector, "as JSON it would exceed"),
        (&procedure, tagless, "field manners: there are 2 unions and 1 numbers of them"),
        (&procedure, in_list, "field tags[1].key: "),
        (&procedure, in_words, "field next.words[2]: "),
        (&procedure, in_union, "field manners[0].to: "),
        (&tag, unnamed, "the reply is no fbs.echo.Tag: required field fbs.echo.Tag.key is missing"),
        (&procedure, b"\xff\xff\xff\xff".to_vec(), "the offset at 0 leads out of the message"),
    ] {
        let status = procedure.read(&bytes, COMPACT).unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains(expected), "{status}");
    }
}

#[test]
fn unknown_names_get_the_nearest_as_a_suggestion() {
    let definitions = definitions();
    assert_eq!(definitions.list(None).unwrap(), ["fbs.echo.Echo"]);
    assert_eq!(definitions.list(Some("Echo")).unwrap()[..2], ["fbs.echo.Echo/Say", "fbs.echo.Echo/Count"]);
    for (typed, expected) in [
        ("Eco/Say", "unknown service Eco; did you mean fbs.echo.Echo?"),
        ("Echo/Cont", "unknown method Cont of fbs.echo.Echo; did you mean Count?"),
    ] {
        assert_eq!(definitions.procedure(typed).unwrap_err().text(), format!("switchboard: {expected}"));
    }
    let kinds = ["Say", "Count", "Join", "Chat"]
        .map(|name| definitions.procedure(&format!("Echo/{name}")).unwrap().kind());
    assert_eq!(kinds, [Kind::Unary, Kind::ServerStream, Kind::ClientStream, Kind::Bidi]);
}
