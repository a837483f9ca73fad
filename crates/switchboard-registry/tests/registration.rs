//! Servers that register themselves: from start to drain, and with a registry that is down.
#![cfg(feature = "embedded")]

mod suite;

use std::{sync::Arc, time::Duration};
use switchboard::{
    Result, Running, Server, StopOptions,
    discover::{Fixed, Instance, Registry, State, Watch},
};
use switchboard_registry::{Embedded, EmbeddedServer};

#[switchboard::service(name = "registration.Echo")]
trait Echo {
    async fn echo(&self, text: String) -> Result<String>;
}

#[switchboard::service(name = "registration.Other")]
trait Other {
    async fn other(&self) -> Result<()>;
}

struct Both;

impl Echo for Both {
    async fn echo(&self, text: String) -> Result<String> {
        Ok(text)
    }
}

impl Other for Both {
    async fn other(&self) -> Result<()> {
        Ok(())
    }
}

fn server() -> Server {
    let notice = Duration::from_millis(200);
    Server::new().add(EchoServer::new(Both)).add(OtherServer::new(Both)).registration_notice(notice)
}

async fn registry(url: &str) -> Running {
    Server::new().add(EmbeddedServer::new()).listen(url).start().await.expect("the address is free")
}

#[tokio::test]
async fn every_service_is_registered_until_the_drain() {
    let running = registry("tcp://127.0.0.1:0").await;
    let registry: Arc<dyn Registry> =
        Arc::new(Embedded::connect(&running.url(), suite::options()).expect("an address"));
    let mut watch = registry.watch("registration.Echo");
    let mut other = registry.watch("registration.Other");
    let instance = Instance::default().zone("z").weight(7);
    let server = server().register(registry.clone(), instance).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    suite::until(&mut watch, &server.url()).await;
    suite::until(&mut other, &server.url()).await;
    let latest = watch.latest();
    let found = &latest.instances[0];
    assert_eq!((found.zone.as_str(), found.weight, &found.address), ("z", 7, &server.url()));
    let echo = EchoClient::connect(&found.address).await.unwrap();
    assert_eq!(*echo.echo("x".to_owned()).await.unwrap(), "x");

    let drained = tokio::spawn(server.drain(Duration::from_secs(5)));
    suite::until_is(&mut watch, |watch| {
        watch.latest().instances.iter().any(|instance| instance.state == State::Draining)
    })
    .await;
    // Callers that have not received the change yet are still served.
    assert_eq!(*echo.echo("y".to_owned()).await.unwrap(), "y");
    suite::until(&mut watch, "").await;
    suite::until(&mut other, "").await;
    assert_eq!(drained.await.unwrap().aborted, 0);
}

#[tokio::test]
async fn a_registry_that_is_down_does_not_delay_the_server() {
    let down = registry("tcp://127.0.0.1:0").await;
    let url = down.url();
    down.kill();
    let client: Arc<dyn Registry> = Arc::new(Embedded::connect(&url, suite::options()).expect("an address"));
    let server = server().register(client.clone(), Instance::default()).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    let echo = EchoClient::connect(&server.url()).await.unwrap();
    assert_eq!(*echo.echo("x".to_owned()).await.unwrap(), "x");
    let _back = registry(&url).await;
    let mut watch = client.watch("registration.Other");
    suite::until(&mut watch, &server.url()).await;
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_killed_server_is_gone_when_its_lease_ends() {
    let running = registry("tcp://127.0.0.1:0").await;
    let options = || suite::options().ttl(Duration::from_secs(1)).confirm_after(Duration::ZERO);
    let client: Arc<dyn Registry> = Arc::new(Embedded::connect(&running.url(), options()).unwrap());
    let mut watch = client.watch("registration.Echo");
    let server = server().register(client.clone(), Instance::default()).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    suite::until(&mut watch, &server.url()).await;
    server.kill();
    suite::until(&mut watch, "").await;
}

#[tokio::test]
async fn an_address_that_callers_cannot_use_is_refused() {
    let list: Arc<dyn Registry> = Arc::new(Fixed::new([]));
    let everywhere = server().register(list.clone(), Instance::default()).listen("tcp://0.0.0.0:0");
    let error = everywhere.start().await.err().expect("callers cannot connect to 0.0.0.0");
    assert!(error.is_config() && error.to_string().contains("set the address"), "{error}");
    let instance = Instance::new("", "tcp://10.0.0.1:80");
    let server = server().register(list.clone(), instance).listen("tcp://0.0.0.0:0").start().await.unwrap();
    let mut watch = list.watch("registration.Echo");
    suite::until(&mut watch, "tcp://10.0.0.1:80").await;
    drop(server);
    suite::until(&mut watch, "").await;
}

/// A registry with one server whose listeners a successor can take over at a path, and a client that watches.
struct Succession {
    _registry: Running,
    client: Arc<dyn Registry>,
    watch: Watch,
    folder: suite::Folder,
    first: Running,
}

impl Succession {
    async fn begin() -> Succession {
        let running = registry("tcp://127.0.0.1:0").await;
        let client: Arc<dyn Registry> =
            Arc::new(Embedded::connect(&running.url(), suite::options()).expect("an address"));
        let (folder, mut watch) = (suite::Folder::new(), client.watch("registration.Echo"));
        let first = Succession::server(&folder).register(client.clone(), Instance::default().version("1"));
        let first = first.start().await.expect("a free port");
        suite::until(&mut watch, &first.url()).await;
        Succession { _registry: running, client, watch, folder, first }
    }

    fn server(folder: &suite::Folder) -> Server {
        server().listen("tcp://127.0.0.1:0").handover(folder.0.join("handover"))
    }
}

#[tokio::test]
async fn a_successor_keeps_the_registrations_that_both_have() {
    let Succession { _registry, client, mut watch, folder, first } = Succession::begin().await;
    let address = first.url();
    let second = Succession::server(&folder).register(client.clone(), Instance::default().version("2"));
    let second = second.start().await.unwrap();
    assert_eq!(second.url(), address);
    suite::until_is(&mut watch, |watch| watch.latest().instances[0].version == "2").await;
    first.handed_over().await;
    assert!(
        first
            .stop(StopOptions::new().drain(Duration::from_secs(5)).close(Duration::from_secs(5)))
            .await
            .is_clean()
    );
    // The registry has processed the last registrations of the first server before this one.
    let last =
        client.register(Instance::new("registration.Echo", "tcp://127.0.0.1:1").id("last")).await.unwrap();
    loop {
        let snapshot = watch.changed().await;
        let kept = snapshot.find(&address).expect("the successor serves all the time");
        assert_eq!((kept.state, &*kept.version), (State::Up, "2"));
        if snapshot.find("last").is_some() {
            break;
        }
    }
    last.end().await.unwrap();
    second.drain(Duration::from_secs(5)).await;
    suite::until(&mut watch, "").await;
}

#[tokio::test]
async fn services_that_a_successor_does_not_register_are_deregistered() {
    let Succession { _registry, client, mut watch, folder, first } = Succession::begin().await;
    let second = Succession::server(&folder).register(client.clone(), Instance::default().id("second"));
    let second = second.start().await.unwrap();
    first.handed_over().await;
    first.stop(StopOptions::new().drain(Duration::from_secs(5)).close(Duration::from_secs(5))).await;
    suite::until(&mut watch, "second").await;
    second.drain(Duration::from_secs(5)).await;
}
