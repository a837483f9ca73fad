//! `switchboard call` on the wires of other frameworks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::json;
use std::{path::Path, sync::mpsc, time::Duration};
use support::{
    echo,
    greeter::{self, GREET as THRIFT_GREET},
    *,
};
use switchboard::{Call, Kind, MethodInfo, Reply, Service, ServiceInfo};

const GREET: &str = "demo.v1.Greeter/Greet";
const ADA: [&str; 3] = [GREET, "-d", r#"{"name": "Ada"}"#];

/// Ways to call a service of a `.proto` file: the scheme and options of a URL.
const WAYS: [(&str, &str); 10] = [
    ("tcp", "wire=baidu_std"),
    ("tcp", "wire=baidu_std&codec=json&checksum=crc32c"),
    ("tcp", "wire=baidu_std&names=short&compression=snappy"),
    ("tcp", "wire=erpc"),
    ("tcp", "wire=erpc&codec=json&framing=json&names=full"),
    ("tcp", "wire=erpc&framing=proto&filter=gzip"),
    ("tcp", "wire=rpcx"),
    ("tcp", "wire=rpcx&codec=json&names=short"),
    ("tcp", "wire=rpcx&network=http"),
    ("ws", "wire=rpcx"),
];

#[test]
fn messages_and_metadata_go_by_every_schema() {
    let server = Server::start();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = ["--proto", "demo/v1/demo.proto", "-I", proto.to_str().unwrap()];
    for (scheme, options) in WAYS {
        let way = &format!("{scheme}://{}?{options}", server.address);
        for schema in [&[][..], &files, &["--raw", "unary"]] {
            let raw = schema.first() == Some(&"--raw");
            let done = call(way, &[&ADA, schema, &["-H", "x-echo: hi", "-v"]].concat());
            assert_eq!(done.values(), [json!({"text": "hello Ada"})], "{way} {schema:?}");
            assert!(done.stderr.contains("metadata x-echo: hi\n"), "{way} {schema:?}: {}", done.stderr);
            let refused = call(way, &[&[GREET, "-d", "{}"], schema].concat());
            assert_eq!(refused.code, 67, "{way} {raw}: {}", refused.stderr);
            assert!(refused.stderr.contains("name is empty"), "{way} {raw}: {}", refused.stderr);
        }
        // Other tests check `describe` in full.
        assert!(call(way, &["list"]).stdout.contains("demo.v1.Greeter\n"), "{way}");
    }
}

#[test]
fn thrift_is_called_with_the_file_of_the_service() {
    let server = greeter::serve();
    let file = greeter::file();
    let with_file = |options: &str, arguments: &[&str]| {
        let url = format!("{server}?{options}");
        call(&url, &[arguments, &["--thrift", &file]].concat())
    };
    for options in [
        "",
        "wire=thrift",
        "framed=false",
        "protocol=compact",
        "protocol=header",
        "protocol=header-compact&zlib=true",
        "multiplexed=true",
        "path=/greeter",
        "http=2&protocol=compact",
    ] {
        let done = with_file(options, &["ThriftGreeter/greet", "-d", r#"{"name": "Ada"}"#]);
        assert_eq!(done.values(), [json!("hello Ada")], "{options}");
        let refused = with_file(options, &[THRIFT_GREET, "-d", "{}"]);
        assert_eq!(refused.code, 67, "{options}: {}", refused.stderr);
        let thrown = r#"thrift.demo.Nameless {"message":"name is empty"}"#;
        assert!(refused.stderr.contains(thrown), "{options}: {}", refused.stderr);
    }
    for carrier in ["protocol=header", "path=/"] {
        let header = with_file(carrier, &[THRIFT_GREET, "-d", r#"{"name": "Ada"}"#, "-H", "x-a: b"]);
        assert_eq!(header.values(), [json!("hello Ada")], "{carrier}");
    }
    let http = server.replacen("tcp://", "http://", 1);
    for url in [http.clone(), format!("{http}/any/path")] {
        let done = call(&url, &[THRIFT_GREET, "--thrift", &file, "-d", r#"{"name": "Ada"}"#]);
        assert_eq!(done.values(), [json!("hello Ada")], "{url}");
    }
    assert_eq!(with_file("", &["list"]).stdout, "thrift.demo.ThriftGreeter\n");
    assert_eq!(with_file("", &["list", "ThriftGreeter"]).stdout, format!("{THRIFT_GREET}\n"));

    for (arguments, expected) in [
        (&[THRIFT_GREET, "-H", "x-a: b"][..], "carries metadata behind THeader and on HTTP alone"),
        (&[THRIFT_GREET, "-d", r#"{"nam": "a"}"#], "ThriftGreeter/greet has no \"nam\"; did you mean name?"),
        (&[THRIFT_GREET, "-d", r#"{"name": 5}"#], "field name: expected a text and not 5"),
        (&["ThriftGreeter/gret"], "unknown method gret of thrift.demo.ThriftGreeter; did you mean greet?"),
        (&["describe"], "for a .thrift or .fbs file use `list`"),
        (&[THRIFT_GREET, "--wire", "rpcx"], "--thrift is for the wire thrift, not for rpcx"),
    ] {
        let done = with_file("", arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
    let missing = call(&server, &[THRIFT_GREET, "--wire", "thrift"]);
    assert!(missing.stderr.contains("name it with --thrift FILE"), "{}", missing.stderr);
    let gone = call(&server, &[THRIFT_GREET, "--thrift", "/nowhere.thrift"]);
    assert!(gone.stderr.contains("cannot read /nowhere.thrift"), "{}", gone.stderr);
}

/// A message with every field that a server of ours has to understand.
const FULL: &str = r#"{
  "text": "häy", "number": 5, "none": 0, "flag": false, "mood": "Calm", "marks": "Read Kept",
  "at": {"id": 1, "at": -0.25, "label": [1, 65535], "mood": "Loud"},
  "path": [{"id": 2, "at": 1e300, "label": [0, 0], "mood": "Calm"}],
  "bytes": [0, 255, 7], "numbers": [1, 18446744073709551615], "tags": [{"key": "a"}, {"key": "", "weight": 0.1}],
  "words": ["x", ""], "moods": ["Calm", "Loud"], "manner_type": "Shout", "manner": {"times": 3},
  "next": {"text": "inner"}, "real": 0.5, "manners_type": ["low", "Shout"], "manners": [{"to": "x"}, {}]
}"#;

#[test]
fn flatbuffers_are_called_with_the_file_of_the_service() {
    const SAY: &str = "fbs.echo.Echo/Say";
    let (server, notes) = echo::serve();
    let file = echo::file();
    let folder = Path::new(&file).parent().unwrap().to_str().unwrap();
    let full: serde_json::Value = serde_json::from_str(FULL).unwrap();
    let with_file = |options: &str, arguments: &[&str]| {
        call(&format!("{server}?{options}"), &[arguments, &["--fbs", &file, "-I", folder]].concat())
    };
    let kiss = "wire=kiss&function=fbs.echo.Echo/Say:7&function=fbs.echo.Echo/Note:8&snappy=dynamic";
    for options in ["", "wire=native", "wire=grpc&codec=proto", kiss] {
        assert_eq!(
            with_file(options, &["Echo/Say", "-d", FULL]).values(),
            std::slice::from_ref(&full),
            "{options}"
        );
        assert_eq!(with_file(options, &[SAY]).values(), [json!({})], "{options}");
        let failed = with_file(options, &[SAY, "-d", r#"{"text": "fail"}"#]);
        // kiss-rpc says no more than that.
        assert_eq!(failed.code, if options == kiss { 66 } else { 69 }, "{options}: {}", failed.stderr);
        // A method that answers nothing needs no flag.
        let noted = with_file(options, &["Echo/Note", "-d", r#"{"number": 3}"#]);
        assert_eq!((noted.code, &*noted.stdout), (0, ""), "{options}: {}", noted.stderr);
        assert_eq!(notes.recv_timeout(Duration::from_secs(20)), Ok(3), "{options}");
    }
    for options in ["", "wire=native"] {
        let counted = with_file(options, &["Echo/Count", "-d", r#"{"number": 2}"#, "--compact"]);
        assert_eq!(counted.stdout, "{\"number\":0}\n{\"number\":1}\n", "{options}: {}", counted.stderr);
        let joined = with_file(options, &["Echo/Join", "-d", r#"{"text": "a"}{"text": "b"}"#]);
        assert_eq!(joined.values(), [json!({"text": "ab"})], "{options}");
        let chat = with_file(options, &["Echo/Chat", "-d", r#"{"text": "a"}{"mood": "Calm"}"#]);
        assert_eq!(chat.values(), [json!({"text": "a"}), json!({"mood": "Calm"})], "{options}");
    }
    let all = with_file("", &[SAY, "--emit-defaults", "--json"]);
    let all = &all.values()[0]["messages"][0];
    assert_eq!((&all["number"], &all["mood"], all.get("none")), (&json!(-7), &json!("Loud"), None), "{all}");
    assert_eq!(with_file("", &["list"]).stdout, "fbs.echo.Echo\n");

    for (options, arguments, expected) in [
        ("", &[SAY, "-d", r#"{"txt": "a"}"#][..], "fbs.echo.Message has no \"txt\"; did you mean text?"),
        ("", &[SAY, "-d", r#"{"tags": [{}]}"#], "field tags[0]: fbs.echo.Tag has no key, which is required"),
        ("", &["Echo/Cont"], "unknown method Cont of fbs.echo.Echo; did you mean Count?"),
        ("", &["describe"], "for a .thrift or .fbs file use `list`"),
        ("wire=connect", &[SAY], "--fbs is for the wires grpc, kiss and native, not for connect"),
        ("codec=json", &[SAY], "codec=json in the URL: tables of .fbs files are written as FlatBuffers"),
        (kiss, &["Echo/Chat"], "has a stream, which kiss does not carry"),
        ("wire=kiss", &[SAY], "add function=fbs.echo.Echo/Say:NUMBER to the address"),
    ] {
        let done = with_file(options, arguments);
        assert_ne!(done.code, 0, "{arguments:?}");
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
    let gone = call(&server, &[SAY, "--fbs", "/nowhere.fbs"]);
    assert!(gone.stderr.contains("cannot read /nowhere.fbs"), "{}", gone.stderr);
}

#[test]
fn replies_that_are_no_flatbuffers_are_named() {
    let server = serve(switchboard::Server::new().add(Garbled));
    for options in ["", "wire=native"] {
        let url = format!("{server}?{options}");
        let done = call(&url, &["Echo/Say", "--fbs", &echo::file(), "-d", r#"{"number": 1}"#]);
        assert_eq!(done.code, 77, "{options}: {}", done.stderr);
        let expected = "the reply is no fbs.echo.Message: the offset at 0 leads out of the message";
        assert!(done.stderr.contains(expected), "{options}: {}", done.stderr);
    }
}

static ECHO: ServiceInfo =
    ServiceInfo { name: "fbs.echo.Echo", methods: &[MethodInfo::new("Say", Kind::Unary)], descriptor: &[] };

/// Answers with bytes that are no table.
struct Garbled;

impl Service for Garbled {
    fn info(&self) -> &'static ServiceInfo {
        &ECHO
    }

    async fn call(&self, call: Call) -> switchboard::Result<Reply> {
        let (_, cx) = call.into_one()?;
        Ok(Reply::one(bytes::Bytes::from_static(b"\xff\xff\xff\x7f"), cx))
    }
}

#[test]
fn what_a_wire_cannot_do_is_named() {
    let server = Server::start();
    let without_grpc = impostor(b"");
    let watch = ["demo.v1.Greeter/Watch", "-d", r#"{"count": 1}"#];
    for (wire, tip) in [
        ("baidu_std", "or send JSON as it is with --raw unary"),
        ("erpc", "or send JSON as it is with --raw unary"),
        ("kiss", "give the schema with --fbs FILE, send a table of FlatBuffers as bytes"),
        ("rpcx", "or send JSON as it is with --raw unary"),
        ("thrift", "give the .thrift file of the service with --thrift FILE"),
    ] {
        if wire != "thrift" {
            let done = call(&server.address, &[&watch[..], &["--wire", wire]].concat());
            assert_eq!(done.code, 2, "{wire}: {}", done.stderr);
            let expected = format!("has a stream, which {wire} does not carry: call it with --wire grpc");
            assert!(done.stderr.contains(&expected), "{wire}: {}", done.stderr);
        }
        let done = call(&without_grpc, &["list", "--wire", wire]);
        assert_eq!(done.code, 78, "{wire}: {}", done.stderr);
        assert!(done.stderr.contains(tip), "{wire}: {}", done.stderr);
    }
    let no_stream = call(&server.address, &[GREET, "--raw", "bidi", "--bytes", "hex"]);
    assert!(
        no_stream.stderr.contains("--bytes is for methods that take one request"),
        "{}",
        no_stream.stderr
    );
    let odd = call(&server.address, &[GREET, "--raw", "unary", "--bytes", "hex", "-d", "0"]);
    assert!(odd.stderr.contains("-d: expected two hexadecimal digits"), "{}", odd.stderr);
    let packed = call(&format!("{}?wire=rpcx&codec=msgpack", server.address), &ADA);
    assert_eq!(packed.code, 2, "{}", packed.stderr);
    assert!(packed.stderr.contains("written here as proto or json"), "{}", packed.stderr);
}

#[switchboard::service]
trait Notes {
    async fn keep(&self, text: String) -> switchboard::Result<String>;
    async fn wait(&self) -> switchboard::Result<()>;
}

struct Kept(mpsc::Sender<usize>);

impl Notes for Kept {
    async fn keep(&self, text: String) -> switchboard::Result<String> {
        self.0.send(text.len()).unwrap();
        Ok(text)
    }

    async fn wait(&self) -> switchboard::Result<()> {
        std::future::pending().await
    }
}

#[test]
fn requests_go_one_way_and_deadlines_end_calls() {
    let (sender, kept) = mpsc::channel();
    let notes = serve(switchboard::Server::new().add(NotesServer::new(Kept(sender))));
    let file = folder("call-wires").join("note.json");
    // More than a socket takes at once.
    std::fs::write(&file, json!({"text": "a".repeat(3 << 20)}).to_string()).unwrap();
    let large = format!("@{}", file.display());
    for wire in ["baidu_std", "connect", "erpc", "grpc", "native", "rpcx"] {
        let done = call(&notes, &["Notes/Keep", "-d", &large, "--oneway", "--wire", wire]);
        assert_eq!(done.values(), [] as [serde_json::Value; 0], "{wire}");
        assert_eq!(kept.recv_timeout(Duration::from_secs(20)), Ok(3 << 20), "{wire}");
        let late = call(&notes, &["Notes/Wait", "--timeout", "300ms", "--wire", wire]);
        assert_eq!(late.code, 68, "{wire}: {}", late.stderr);
    }
    let stream = ["demo.v1.Greeter/Watch", "-d", "{}", "--oneway"];
    let refused = call(&Server::start().address, &stream);
    assert!(refused.stderr.contains("has a stream: --oneway is for one request"), "{}", refused.stderr);
}

#[test]
fn functions_of_kiss_rpc_are_called_by_their_numbers() {
    let (sender, kept) = mpsc::channel();
    let server = switchboard::Server::new().add(NotesServer::new(Kept(sender)));
    let notes = serve(server.alias("kiss/7", "Notes/Keep").alias("kiss/8", "Notes/Wait"));
    let url = format!("{notes}?wire=kiss&function=Notes/Keep:7&function=Notes/Wait:8&snappy=dynamic");
    let keep = ["Notes/Keep", "-d", r#"{"text": "hi"}"#];
    for schema in [&[][..], &["--raw", "unary"]] {
        assert_eq!(call(&url, &[&keep, schema].concat()).values(), [json!("hi")], "{schema:?}");
        assert_eq!(kept.recv(), Ok(2), "{schema:?}");
    }
    assert_eq!(call(&url, &[&keep[..], &["--oneway"]].concat()).stdout, "");
    assert_eq!(kept.recv_timeout(Duration::from_secs(20)), Ok(2));
    assert_eq!(call(&url, &["Notes/Wait", "--timeout", "300ms"]).code, 68);
    for (options, arguments, expected) in [
        ("wire=kiss", &[][..], "add function=Notes/Keep:NUMBER to the address"),
        ("wire=kiss&function=Notes/Keep:7", &["-H", "x-a: b"], "kiss-rpc carries no metadata"),
    ] {
        let done = call(&format!("{notes}?{options}"), &[&keep, arguments].concat());
        assert_ne!(done.code, 0, "{options}: {}", done.stderr);
        assert!(done.stderr.contains(expected), "{options}: {}", done.stderr);
    }
}

static MIRROR: ServiceInfo =
    ServiceInfo { name: "test.Mirror", methods: &[MethodInfo::new("Show", Kind::Unary)], descriptor: &[] };

/// Answers with the codec and the bytes that it gets.
struct Mirror;

impl Service for Mirror {
    fn info(&self) -> &'static ServiceInfo {
        &MIRROR
    }

    async fn call(&self, call: Call) -> switchboard::Result<Reply> {
        let codec = call.codec();
        let (message, cx) = call.into_one()?;
        let answer = [codec.to_string().as_bytes(), b" ", &message[..]].concat();
        Ok(Reply::one(bytes::Bytes::from(answer), cx))
    }
}

#[test]
fn bytes_go_as_they_are_on_every_wire() {
    let server = serve(switchboard::Server::new().add(Mirror).alias("kiss/5", "test.Mirror/Show"));
    let file = folder("call-wires").join("bytes");
    std::fs::write(&file, b"\0\xff").unwrap();
    let file = format!("@{}", file.display());
    for (options, codec) in [
        ("wire=kiss&function=test.Mirror/Show:5", "flatbuffers"),
        ("wire=rpcx&codec=msgpack", "msgpack"),
        ("wire=erpc", "proto"),
        ("wire=native", "proto"),
    ] {
        let url = format!("{server}?{options}");
        let show = |digits: &str, data: &str| {
            call(&url, &["test.Mirror/Show", "--raw", "unary", "--bytes", digits, "-d", data]).values()
        };
        let expected = format!("{codec} ").into_bytes().into_iter().chain([0, 255]);
        let expected: String = expected.map(|byte| format!("{byte:02x}")).collect();
        for data in ["00 FF", &file] {
            assert_eq!(show("hex", data), [json!(expected)], "{options} {data}");
        }
    }
    let shown = call(&server, &["test.Mirror/Show", "--raw", "unary", "--bytes", "base64", "-d", "AP8"]);
    assert_eq!(shown.values(), [json!("cHJvdG8gAP8=")]);
}
