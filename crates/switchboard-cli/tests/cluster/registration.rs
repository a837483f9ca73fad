//! `serve --register` and `serve --registry`, from the flags to the drain, and callers that ask a registry.

use super::{
    GREETER, bytes, method,
    process::{Process, run, soon, until},
    text,
};
use std::process::Output;
use switchboard::{
    Channel, Codec, Kind,
    discover::{State, Watch},
};

/// The state of each instance that the registry knows, and where it is.
fn known(watch: &Watch) -> Vec<(String, State)> {
    let instances = watch.latest().instances.clone();
    instances.into_iter().map(|instance| (instance.address, instance.state)).collect()
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{:?}: {out}{err}", output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_register_and_callers_find_them() {
    let home = Process::start("127.0.0.1:0", "--registry");
    let registry = home.registry();
    let flags = format!("--register {registry} --register-as zone=eu-1a --register-as tags=disk:fast");
    let one = Process::start("127.0.0.1:0", &format!("{flags} --register-as weight=50"));
    let file = std::env::temp_dir().join(format!("switchboard-cluster-{}.toml", std::process::id()));
    std::fs::write(&file, format!("[register]\nto = [\"{registry}\"]\nversion = \"1.2.0\"\n")).unwrap();
    let two = Process::start("127.0.0.1:0", &format!("--config {}", file.display()));
    std::fs::remove_file(file).unwrap();

    let watch = switchboard_registry::connect(&registry).unwrap().watch(GREETER);
    until("both servers in the registry", || known(&watch).len() == 2).await;
    let latest = watch.latest();
    let found = |process: &Process| latest.find(&process.url()).cloned().unwrap();
    let (first, second) = (found(&one), found(&two));
    assert_eq!((first.weight, first.zone.as_str()), (50, "eu-1a"));
    assert_eq!(first.tags.get("disk").map(String::as_str), Some("fast"));
    assert_eq!((second.weight, second.version.as_str()), (100, "1.2.0"));

    for options in ["", "?wire=native&balance=round_robin", "?wire=connect"] {
        let called = run(&format!("call {registry}{options} {GREETER}/Greet -d {{\"name\":\"Ada\"}}")).await;
        assert!(said(&called).contains("hello Ada"), "{options}: {}", said(&called));
    }
    let listed = run(&format!("call {registry} list {GREETER}")).await;
    assert!(said(&listed).contains("demo.v1.Greeter/Greet"), "{}", said(&listed));
    for (line, code, why) in [
        ("list", 2, "name one, as in `list demo.v1.Greeter`"),
        (
            "demo.v1.Missing/Call --raw unary -d {} --timeout 5s",
            78,
            "there is no endpoint of demo.v1.Missing",
        ),
    ] {
        let wrong = run(&format!("call {registry} {line}")).await;
        assert!(wrong.status.code() == Some(code) && said(&wrong).contains(why), "{line}: {}", said(&wrong));
    }
    let wrong = run(&format!("call {registry}?balance=p3c {GREETER}/Greet -d {{}}")).await;
    assert!(wrong.status.code() == Some(2) && said(&wrong).contains("did you mean p2c?"), "{}", said(&wrong));

    let line = format!("call {registry}?wire=native {GREETER}/Greet -d {{\"name\":\"Ada\"}} --explain");
    let text = said(&run(&line).await);
    for part in [
        "2 instances, 2 of them selected",
        "balance: p2c",
        "weight 50",
        "  attempt 1: tcp://",
        ", replied at ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let object: serde_json::Value =
        serde_json::from_slice(&run(&format!("{line} --json")).await.stdout).unwrap();
    assert_eq!(object["messages"][0]["text"], "hello Ada");
    assert_eq!(object["explain"]["candidates"].as_array().map(Vec::len), Some(2), "{object}");
    assert!(object["explain"]["attempts"][0]["ended_ms"].as_f64().is_some(), "{object}");

    let target = format!("bench echo --seconds 0.1 --callers 8 --target {registry}?balance=round_robin");
    let measured = run(&target).await;
    assert!(measured.status.success(), "{}", said(&measured));
    for server in [&one, &two] {
        assert!(server.answered("bench.v1.Bench", "Echo") > 0);
    }
}

/// A stream in flight keeps the server from stopping, so states seen meanwhile precede the stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_server_deregisters_before_it_stops() {
    let home = Process::start("127.0.0.1:0", "--registry");
    let flags = format!("--register {} --register-as notice=2s", home.registry());
    let mut server = Process::start("127.0.0.1:0", &flags);
    let watch = switchboard_registry::connect(&home.registry()).unwrap().watch(GREETER);
    let url = server.url();
    until("the server in the registry", || known(&watch) == [(url.clone(), State::Up)]).await;

    let channel = Channel::connect(&url).await.unwrap();
    let (notes, mut replies) =
        soon("a stream", channel.bidi(method("Chat", Kind::Bidi), Codec::Proto, bytes, |_, b| Ok(b)))
            .await
            .unwrap();
    let mut chat = async |note: &str| {
        notes.send(text(note)).await.unwrap();
        soon("an answer", replies.next()).await.unwrap().expect("the stream goes on")
    };
    assert_eq!(chat("a").await, text("A"));

    server.terminate();
    until("the news that it drains", || known(&watch) == [(url.clone(), State::Draining)]).await;
    // Who has not heard of it yet is still served.
    let greet = channel.unary(method("Greet", Kind::Unary), Codec::Proto, Ok(text("Ada")), |_, b| Ok(b));
    assert_eq!(*soon("an answer", greet).await.unwrap(), text("hello Ada"));
    until("the end of its registration", || known(&watch).is_empty()).await;
    assert!(server.is_running());
    assert_eq!(chat("b").await, text("B"));
    notes.finish();
    assert_eq!(soon("the end", replies.next()).await.unwrap(), None);
    drop(channel);
    let (code, log) = tokio::task::spawn_blocking(move || server.ended()).await.unwrap();
    assert!(code == Some(0) && log.contains("drained") && !log.contains("aborted"), "{code:?} {log}");
}
