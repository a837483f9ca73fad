//! Runs whole foreign test suites: against the servers of `interop/conformance`, which implement the services that
//! those suites call, and with the clients of `interop/conformance-client`.

mod baidu;
mod erpc;
mod every_wire;
mod h2spec;
mod rpcx;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::interop::server_command;
use crate::peers::Peer;
use crate::process::{self, Failure, Server};
use crate::steps::{Outcome, Run};

/// All cases of a suite take some ten seconds; one that hangs has a limit of its own.
const SUITE_LIMIT: Duration = Duration::from_secs(300);

/// Engines of gRPC channels, while there are two.
const GRPC_ENGINES: [&str; 2] = ["h2", "own"];

/// One case of the interop client takes less than a second, the soaking ones ten.
const CASE_LIMIT: Duration = Duration::from_secs(30);

/// The cases of gRPC's interop client that need neither TLS nor credentials.
const GRPC_CASES: [&str; 17] = [
    "cancel_after_begin",
    "cancel_after_first_response",
    "channel_soak",
    "client_streaming",
    "custom_metadata",
    "empty_stream",
    "empty_unary",
    "large_unary",
    "pick_first_unary",
    "ping_pong",
    "rpc_soak",
    "server_streaming",
    "special_status_message",
    "status_code_and_message",
    "timeout_on_sleeping_server",
    "unimplemented_method",
    "unimplemented_service",
];

/// The tests of the registries with all of them built in; none may be left out for a server that is missing.
pub(crate) fn registries(run: &Run<'_>) -> Outcome {
    let mut command = run.workspace.cargo_command();
    command.args(["test", "--package", "switchboard-registry", "--all-features", "--lib", "--tests"]);
    let mut missing = Vec::new();
    for (peer, variable) in [
        (Peer::Consul, Some("SWITCHBOARD_CONSUL")),
        (Peer::Dnsmasq, None),
        (Peer::Etcd, None),
        (Peer::Redis, None),
        (Peer::RpcxRegistry, Some("SWITCHBOARD_RPCX_REGISTRY")),
        (Peer::ZooKeeper, None),
    ] {
        match (run.peers.path(peer), variable) {
            (Ok(path), Some(variable)) => drop(command.env(variable, path)),
            (Ok(_), None) => {}
            (Err(failure), _) => missing.push(failure.to_string()),
        }
    }
    if !missing.is_empty() {
        return Outcome::Skipped(missing.join("; "));
    }
    process::run(command.env("SWITCHBOARD_REGISTRIES", "required")).into()
}

/// The tests of the engines of a bus against their servers; none may be left out for a server that is missing.
pub(crate) fn engines(run: &Run<'_>) -> Outcome {
    let mut command = run.workspace.cargo_command();
    command.args(["test", "--package", "switchboard-broker", "--all-features", "--lib", "--tests"]);
    let mut missing = Vec::new();
    for (peer, variable) in [
        (Peer::Kafka, "SWITCHBOARD_KAFKA"),
        (Peer::NatsServer, "SWITCHBOARD_NATS_SERVER"),
        (Peer::Redis, "SWITCHBOARD_REDIS"),
    ] {
        match run.peers.path(peer) {
            Ok(path) => drop(command.env(variable, path)),
            Err(failure) => missing.push(failure.to_string()),
        }
    }
    if !missing.is_empty() {
        return Outcome::Skipped(missing.join("; "));
    }
    process::run(command.env("SWITCHBOARD_ENGINES", "required")).into()
}

/// Connect's conformance suite in the role of the client.
pub(crate) fn conformance_server(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::ConnectConformance, |suite| {
        let server = built(run, "conformance-server")?;
        let config = run.workspace.root.join("interop/conformance/connect-server.yaml");
        let mut command = Command::new(suite);
        command.arg("--conf").arg(config).args(["--mode", "server", "--"]).arg(server);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// Connect's conformance suite in the role of the server.
pub(crate) fn conformance_client(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::ConnectConformance, |suite| {
        let client = built_of(run, "conformance-client", "conformance-client")?;
        let config = run.workspace.root.join("interop/conformance-client/connect-client.yaml");
        for engine in GRPC_ENGINES {
            let mut command = Command::new(&suite);
            command.arg("--conf").arg(&config).args(["--mode", "client", "--"]).arg(&client);
            process::run_within(SUITE_LIMIT, command.env("GRPC_ENGINE", engine))?;
        }
        Ok(())
    })
}

/// Every interop case of our own client against gRPC's Go server.
pub(crate) fn grpc_go_server(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::GrpcGoServer, |server| {
        let client = built_of(run, "conformance-client", "interop-client")?;
        let server = Server::start_on_free_port(|port| {
            let mut command = Command::new(&server);
            command.arg(format!("-port={port}"));
            command
        })?;
        for engine in GRPC_ENGINES {
            let url = format!("tcp://127.0.0.1:{}?wire=grpc&engine={engine}", server.port);
            process::run_within(CASE_LIMIT, Command::new(&client).arg(url))?;
        }
        Ok(())
    })
}

/// Every interop case from gRPC's Go client, one process each.
pub(crate) fn grpc_go(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::GrpcGoClient, |client| {
        let server = Server::start(&mut Command::new(built(run, "interop-server")?))?;
        for case in GRPC_CASES {
            let mut command = Command::new(&client);
            command.args(["-server_host=127.0.0.1", &format!("-server_port={}", server.port)]);
            process::run_within(CASE_LIMIT, command.arg(format!("-test_case={case}")))?;
        }
        println!("{} of {} cases", GRPC_CASES.len(), GRPC_CASES.len());
        Ok(())
    })
}

/// Retries of grpc-go's client, which a server that sends more than a Trailers-Only response prevents.
pub(crate) fn grpc_go_retry(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::GrpcGoRetry, |client| {
        let server = Server::start(&mut Command::new(built(run, "interop-server")?))?;
        process::run_within(CASE_LIMIT, Command::new(client).arg(format!("127.0.0.1:{}", server.port)))
    })
}

/// HTTP/2 as h2spec checks it: what fails must fail against grpc-go as well.
pub(crate) fn h2spec(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::H2spec, |h2spec| h2spec::check(run, &h2spec))
}

/// rpcx in both directions: its Go client to our server, and our client to its Go server.
pub(crate) fn rpcx(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Rpcx, |peer| rpcx::check(run, &peer))
}

/// Every wire at once on one port: our clients, and those of others.
pub(crate) fn every_wire(run: &Run<'_>) -> Outcome {
    every_wire::check(run)
}

/// eRPC in both directions: its Go client to our server, and our client to its Go servers.
pub(crate) fn erpc(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Erpc, |peer| erpc::check(run, &peer))
}

/// baidu_std with Java programs: their client and our server, then the other way round.
pub(crate) fn baidu(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Jprotobuf, |java| baidu::check(run, &java))
}

/// baidu_std and its relatives with Baidu's framework for Java, in both directions.
pub(crate) fn brpc_java(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::BrpcJava, |java| baidu::check_brpc_java(run, &java))
}

/// The streams of baidu_std with a Python program that was written from their description, in both roles.
pub(crate) fn baidu_streams(run: &Run<'_>) -> Outcome {
    if !process::is_in_path("python3") {
        return Outcome::Skipped("python3 is not installed".to_owned());
    }
    baidu::check_streams(run).into()
}

/// Runs `buf curl` in each dialect, and the load generator ghz for a short time.
pub(crate) fn tools(run: &Run<'_>) -> Outcome {
    let outcome = with_peer(run, Peer::Buf, |buf| tools::buf_curl(run, &buf));
    match outcome {
        Outcome::Passed => with_peer(run, Peer::Ghz, |ghz| tools::ghz(run, &ghz)),
        other => other,
    }
}

/// Runs `check` with an installed peer; skips it when there is none.
fn with_peer(run: &Run<'_>, peer: Peer, check: impl FnOnce(PathBuf) -> Result<(), Failure>) -> Outcome {
    match run.peers.path(peer) {
        Ok(path) => check(path).into(),
        Err(failure) => Outcome::Skipped(failure.to_string()),
    }
}

/// A server of `interop/conformance`, freshly built.
fn built(run: &Run<'_>, server: &str) -> Result<PathBuf, Failure> {
    built_of(run, "conformance", server)
}

/// The cases of Thrift's cross tests with its Python library, which is the client and then the server.
pub(crate) fn thrift(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Thrift, |python| {
        python_cases(
            run,
            &python,
            "thrift",
            "thrift-interop",
            &["test_client", "test_protobuf", "test_proxy", "test_server"],
        )
    })
}

/// kiss-rpc with Python programs: their client and our server, then the other way round.
pub(crate) fn kiss(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Kiss, |python| python_cases(run, &python, "kiss", "interop-kiss", &["test_kiss"]))
}

/// The ZMTP machine, our sockets and the plugin for ZeroMQ with sockets of libzmq: every pair of socket types, either
/// side listening, and the topics of a server; jszmq in WebSockets.
pub(crate) fn zmtp(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Zmtp, |python| {
        let jszmq = run.peers.path(Peer::Jszmq)?;
        let folder = run.workspace.root.join("interop/zmtp");
        let peer = built_of(run, "interop-zmtp", "zmtp-peer")?;
        let server = built_of(run, "interop-zmtp", "zmtp-server")?;
        let socket = built_of(run, "interop-zmtp", "zmtp-socket")?;
        let mut command = Command::new(python);
        command
            .args(["-B", "-W", "ignore", "-m", "unittest", "--verbose"])
            .args(["test_zmtp", "test_curve", "test_server", "test_peers", "test_socket", "test_zws"])
            .current_dir(folder.join("python"))
            .env("ZMTP_PEER", peer)
            .env("ZMTP_SERVER", &server)
            .env("ZMTP_SOCKET", socket);
        process::run_within(SUITE_LIMIT, &mut command)?;
        let mut cases = Command::new("node");
        cases.args(["--test", "jszmq.test.cjs"]).current_dir(folder.join("js"));
        process::run_within(SUITE_LIMIT, cases.env("ZMTP_SERVER", server).env("JSZMQ", jszmq))
    })
}

/// Patterns with libzmq and majortomo, either side with the other.
pub(crate) fn patterns(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Patterns, |python| {
        let requests = built_of(run, "interop-patterns", "request-patterns")?;
        let state = built_of(run, "interop-patterns", "state-patterns")?;
        let mut command = Command::new(python);
        command
            .args(["-B", "-W", "ignore", "-m", "unittest", "--verbose", "test_patterns"])
            .args(["test_clone", "test_last_value_cache", "test_pair_and_devices"])
            .current_dir(run.workspace.root.join("interop/patterns/python"))
            .env("REQUEST_PATTERNS", requests)
            .env("STATE_PATTERNS", state);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// The plugin for Redis with redis-py, redis-cli, redis-benchmark and ioredis.
pub(crate) fn redis(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::RedisPy, |python| {
        run.peers.path(Peer::RedisTools)?;
        let ioredis = run.peers.path(Peer::Ioredis)?;
        let server = built_of(run, "interop-redis", "resp-server")?;
        let folder = run.workspace.root.join("interop/redis");
        let mut cases = Command::new(python);
        cases
            .args(["-B", "-m", "unittest", "--verbose", "test_redis", "test_tools"])
            .current_dir(folder.join("python"))
            .env("RESP_SERVER", &server);
        process::run_within(SUITE_LIMIT, &mut cases)?;
        let mut cases = Command::new("node");
        cases.args(["--test", "ioredis.test.cjs"]).current_dir(folder.join("js"));
        process::run_within(SUITE_LIMIT, cases.env("RESP_SERVER", server).env("IOREDIS", ioredis))
    })
}

/// Clients of Centrifuge with their library for Node.
pub(crate) fn centrifuge(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Centrifuge, |packages| {
        let mut command = Command::new("node");
        command
            .args(["--test", "sdk.test.cjs"])
            .current_dir(run.workspace.root.join("interop/centrifuge/js"))
            .env("CENTRIFUGE_NODE_MODULES", packages.join("node_modules"))
            .env("CENTRIFUGE_SERVER", built_of(run, "interop-centrifuge", "centrifuge-server")?);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// Devices of goim and im-cloud with clients in Python, which need no packages.
pub(crate) fn goim(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Python, |python| {
        let mut command = Command::new(python);
        command
            .args(["-B", "-m", "unittest", "--verbose", "test_goim"])
            .current_dir(run.workspace.root.join("interop/goim/python"))
            .env("GOIM_SERVER", built_of(run, "interop-goim", "goim-server")?);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// Event streams of a bus with curl, Chromium, Node's eventsource and Python's websockets.
pub(crate) fn events(run: &Run<'_>) -> Outcome {
    let peers = [Peer::Chromium, Peer::Curl, Peer::Node].map(|peer| run.peers.path(peer));
    let (chromium, node) = match peers {
        [Ok(chromium), Ok(_), Ok(node)] => (chromium, node),
        [Err(failure), ..] | [_, Err(failure), _] | [.., Err(failure)] => {
            return Outcome::Skipped(failure.to_string());
        }
    };
    with_peer(run, Peer::Python, |python| {
        let mut command = Command::new(python);
        command
            .args(["-B", "-m", "unittest", "--verbose", "test_chromium", "test_events"])
            .current_dir(run.workspace.root.join("interop/events/python"))
            .env("EVENTS_NODE", node)
            .env("SWITCHBOARD_PEER", chromium)
            .env("EVENTS_SERVER", built_of(run, "interop-events", "events-server")?);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// `switchboard bus` with a server of NATS, one of Redis, and sockets of libzmq.
pub(crate) fn bus(run: &Run<'_>) -> Outcome {
    let servers = [Peer::NatsServer, Peer::Redis, Peer::RedisTools].map(|peer| run.peers.path(peer));
    let (nats, redis) = match servers {
        [Ok(nats), Ok(redis), Ok(_)] => (nats, redis),
        [Err(failure), ..] | [_, Err(failure), _] | [.., Err(failure)] => {
            return Outcome::Skipped(failure.to_string());
        }
    };
    with_peer(run, Peer::Zmtp, |python| {
        let mut command = Command::new(python);
        command
            .args(["-B", "-W", "ignore", "-m", "unittest", "--verbose", "test_bus"])
            .current_dir(run.workspace.root.join("interop/bus/python"))
            .env("SWITCHBOARD", built_of(run, "switchboard-cli", "switchboard")?)
            .env("NATS_SERVER", nats)
            .env("REDIS_SERVER", redis);
        if let Ok(tool) = run.peers.path(Peer::NatsTool) {
            command.env("NATS_TOOL", tool);
        }
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// One topic with subscribers of every protocol at the same time: for ten seconds, or `TOPIC_SECONDS`.
pub(crate) fn one_topic(run: &Run<'_>) -> Outcome {
    let pythons = [
        ("PYTHON_NATS", Peer::Nats),
        ("PYTHON_REDIS", Peer::RedisPy),
        ("PYTHON_ZMTP", Peer::Zmtp),
        ("PYTHON_GRPC", Peer::Python),
    ];
    with_peer(run, Peer::Python, |python| {
        let mut command = Command::new(python);
        command
            .args(["-B", "-m", "unittest", "--verbose", "test_topic"])
            .current_dir(run.workspace.root.join("interop/topic/python"))
            .env("SWITCHBOARD", built_of(run, "switchboard-cli", "switchboard")?);
        for (variable, peer) in pythons {
            command.env(variable, run.peers.path(peer)?);
        }
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// The plugin for MQTT with paho-mqtt, and with the tools and the broker of mosquitto. Without the tools or the broker
/// on the machine, their cases are skipped.
pub(crate) fn mqtt(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Mqtt, |python| {
        let server = built_of(run, "interop-mqtt", "mqtt-server")?;
        let mut command = Command::new(python);
        command
            .args(["-B", "-W", "ignore", "-m", "unittest", "--verbose", "test_mqtt"])
            .current_dir(run.workspace.root.join("interop/mqtt/python"))
            .env("MQTT_SERVER", server);
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// The plugin for NATS with its clients for Python, for Node and for Go, the last as the tool `nats`. Without the last
/// two, their cases are skipped.
pub(crate) fn nats(run: &Run<'_>) -> Outcome {
    with_peer(run, Peer::Nats, |python| {
        let server = built_of(run, "interop-nats", "nats-server")?;
        let mut command = Command::new(python);
        command
            .args(["-B", "-W", "ignore", "-m", "unittest", "--verbose", "test_nats"])
            .current_dir(run.workspace.root.join("interop/nats/python"))
            .env("NATS_SERVER", server);
        if let Ok(packages) = run.peers.path(Peer::Node) {
            command.env("NATS_NODE_MODULES", packages.join("node_modules"));
        }
        if let Ok(tool) = run.peers.path(Peer::NatsTool) {
            command.env("NATS_TOOL", tool);
        }
        process::run_within(SUITE_LIMIT, &mut command)
    })
}

/// Python's cases of `interop/NAME/python` against the programs `NAME-server` and `NAME-client` of a package.
fn python_cases(
    run: &Run<'_>,
    python: &Path,
    name: &str,
    package: &str,
    modules: &[&str],
) -> Result<(), Failure> {
    let server = built_of(run, package, &format!("{name}-server"))?;
    let client = built_of(run, package, &format!("{name}-client"))?;
    let variable = |role: &str| format!("{}_{role}", name.to_uppercase());
    let mut command = Command::new(python);
    command
        .args(["-B", "-m", "unittest", "--verbose"])
        .args(modules)
        .current_dir(run.workspace.root.join("interop").join(name).join("python"))
        .env("SWITCHBOARD_BIN", server_command(run)?)
        .env(variable("SERVER"), server)
        .env(variable("CLIENT"), client);
    process::run_within(SUITE_LIMIT, &mut command)
}

/// A program of this package, freshly built.
pub(crate) fn built_of(run: &Run<'_>, package: &str, program: &str) -> Result<PathBuf, Failure> {
    run.workspace.cargo(&["build", "--package", package, "--bin", program])?;
    Ok(run.workspace.built()?.join(program))
}
