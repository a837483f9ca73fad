//! The embedded registry, in the suite of all registries.
#![cfg(feature = "embedded")]

mod suite;

use std::{sync::Arc, time::Duration};
use suite::{Members, Rig};
use switchboard::{
    Code, Running, Server,
    discover::{Instance, Options, Registry},
};
use switchboard_registry::{Embedded, EmbeddedServer};

struct Local {
    url: String,
    server: Option<Running>,
    members: Members,
}

impl Local {
    async fn new() -> Local {
        let server = serve("tcp://127.0.0.1:0").await;
        Local { url: server.url(), server: Some(server), members: Members::new() }
    }
}

async fn serve(url: &str) -> Running {
    Server::new().add(EmbeddedServer::new()).listen(url).start().await.expect("the address is free")
}

impl Rig for Local {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        Arc::new(Embedded::connect(&self.url, options).expect("a good address"))
    }

    async fn stop(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    async fn start(&mut self) {
        self.server = Some(serve(&self.url).await);
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}

#[tokio::test]
async fn suite() {
    suite::run(&mut Local::new().await).await;
}

#[tokio::test]
async fn lists_larger_than_a_message_arrive() {
    let rig = Local::new().await;
    let registry = rig.connect(suite::options());
    let mut leases = Vec::new();
    for at in 0..700 {
        let instance = suite::instance("suite.Large", at).tag("filler", "x".repeat(7000));
        leases.push(registry.register(instance).await.expect("there is room"));
    }
    let mut watch = rig.connect(suite::options()).watch("suite.Large");
    suite::until_is(&mut watch, |watch| watch.latest().instances.len() == 700).await;
}

#[tokio::test]
async fn instances_over_a_limit_are_refused_and_others_continue() {
    let server = Server::new().add(EmbeddedServer::with_limits(10, 2, 500)).listen("tcp://127.0.0.1:0");
    let server = server.start().await.expect("a free port");
    let registry = Embedded::connect(&server.url(), suite::options()).expect("a good address");
    let large = registry.register(suite::instance("a", 1).tag("t", "x".repeat(600))).await.unwrap_err();
    assert!(large.message().contains("instance_bytes_max 500"), "{large}");
    let _one = registry.register(suite::instance("a", 1)).await.unwrap();
    let _two = registry.register(suite::instance("a", 2)).await.unwrap();
    let full = registry.register(suite::instance("a", 3)).await.unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    let refusing = Embedded::connect(&server.url(), suite::options().instances_max(1)).unwrap();
    let mut watch = refusing.watch("a");
    suite::until_is(&mut watch, |watch| watch.state().error.is_some()).await;
    assert!(watch.state().error.unwrap().message().contains("instances_max 1"));
    assert!(watch.latest().instances.is_empty());
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_an_error_of_the_first_registration() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let registry = Embedded::connect(&url, suite::options().ttl(Duration::from_millis(300))).unwrap();
    let refused = registry.register(Instance::new("a", "tcp://h:1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}
