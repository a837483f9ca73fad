//! A real Redis, in the suite of all registries.
#![cfg(feature = "redis")]

mod suite;

use std::{path::Path, sync::Arc, time::Duration};
use suite::{
    local::{Local, Program},
    process::find,
    rpcx,
};
use switchboard::discover::{Instance, Options, Registry};
use switchboard_registry::{Redis, layout::Style};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
};

struct Installed;

impl Program for Installed {
    const TTL: Duration = Duration::from_secs(1);

    fn command(folder: &Path, [port, _]: [u16; 2]) -> Option<Command> {
        let mut command = Command::new(find(&["redis-server"], "redis-server")?);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no", "--dir"]).arg(folder);
        Some(command)
    }

    fn connect(style: Style, port: u16, options: Options) -> Arc<dyn Registry> {
        let url = format!("redis://127.0.0.1:{port}/3");
        Arc::new(Redis::connect_as(style, &url, "", options).expect("a good address"))
    }
}

/// Sends a command as any client would, and returns the raw response.
async fn command(port: u16, words: &[&str]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Redis takes connections");
    let mut text = "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n".to_owned();
    text += &format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(text.as_bytes()).await.expect("Redis reads");
    stream.shutdown().await.expect("Redis reads to the end");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("Redis responses");
    response.strip_prefix("+OK\r\n").expect("Redis selects the database").to_owned()
}

#[tokio::test]
async fn suite() {
    let Some(mut local) = Local::<Installed>::of(Style::Own).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn prefixes_separate_fleets_and_errors_contain_no_password() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let url = format!("redis://127.0.0.1:{}", local.port());
    let (one, two) =
        (Redis::connect(&url, "one", suite::options()), Redis::connect(&url, "two", suite::options()));
    let _lease = one.unwrap().register(suite::instance("a", 1)).await.unwrap();
    let mut watch = two.unwrap().watch("a");
    assert!(watch.changed().await.instances.is_empty());
    let secret = Redis::connect("redis://ada:secret@127.0.0.1:1/0", "", suite::options()).unwrap();
    assert_eq!(secret.name(), "redis 127.0.0.1:1");
    let wrong = Redis::connect("redis://", "", suite::options()).err().expect("no host");
    assert!(wrong.message().contains("the address"), "{wrong}");
}

#[tokio::test]
async fn suite_with_the_layout_of_rpcx() {
    let Some(mut local) = Local::<Installed>::of(Style::Rpcx).await else { return };
    suite::run(&mut local).await;
}

#[tokio::test]
async fn plug_ins_of_rpcx_find_our_servers_and_we_find_theirs() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let place = format!("127.0.0.1:{}", local.port());
    let Some(plugins) = rpcx::Plugins::of("redis", &place) else { return };
    for base in ["/rpcx_test", "rpcx_test"] {
        let url = format!("redis://{place}/0?prefix={base}&layout=rpcx&ttl=2s&confirm_after=0s");
        rpcx::their_crash(&plugins, base, &url).await;
        rpcx::both_ways(&plugins, base, &url, async || {}).await;
    }
}

#[tokio::test]
async fn keys_and_values_are_those_of_the_plug_in_of_rpcx() {
    let Some(local) = Local::<Installed>::of(Style::Own).await else { return };
    let url = format!("redis://127.0.0.1:{}/3?prefix=rpcx_test&layout=rpcx&confirm_after=0s", local.port());
    let registry = switchboard_registry::connect(&url).unwrap();
    let mut watch = registry.watch("Arith");
    assert!(watch.changed().await.instances.is_empty());
    // As rpcx clients set it.
    command(local.port(), &["CONFIG", "SET", "notify-keyspace-events", "KEA"]).await;
    let key = "/rpcx_test/Arith/tcp@10.0.0.7:8972";
    let value = r#"{"Key":"rpcx_test/Arith/tcp@10.0.0.7:8972","Value":"Z3JvdXA9Zw==","LastIndex":7}"#;
    command(local.port(), &["SET", key, value, "EX", "60"]).await;
    command(local.port(), &["SET", "/rpcx_test/Arithmetic/tcp@10.0.0.8:8972", value, "EX", "60"]).await;
    let theirs = Instance::new("Arith", "tcp://10.0.0.7:8972?wire=rpcx").group("g");
    suite::until_is(&mut watch, |watch| watch.latest().instances == [theirs.clone()]).await;
    let lease = registry.register(Instance::new("Arith", "tcp://10.0.0.9:80?wire=rpcx")).await.unwrap();
    suite::until_is(&mut watch, |watch| watch.latest().instances.len() == 2).await;
    let ours = command(local.port(), &["GET", "/rpcx_test/Arith/tcp@10.0.0.9:80"]).await;
    let wanted = r#"{"Key":"rpcx_test/Arith/tcp@10.0.0.9:80","Value":"","LastIndex":0}"#;
    assert_eq!(ours, format!("${}\r\n{wanted}\r\n", wanted.len()));
    command(local.port(), &["DEL", key]).await;
    suite::until(&mut watch, "tcp://10.0.0.9:80?wire=rpcx").await;
    lease.end().await.unwrap();
    suite::until(&mut watch, "").await;
}
