//! Kafka on one node, as broker and controller.

use super::process::find;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// A node that ends with its owner, or with the process of the tests.
pub(crate) struct Node {
    child: Child,
    /// For clients without credentials.
    pub(crate) port: u16,
    /// For the user `me` with the password `secret`.
    pub(crate) sasl_port: u16,
}

/// The shell kills the server when its own input ends, also if the tests are killed; it ends with the server,
/// and then removes the folder of a node that tests share.
const GUARD: &str = r#"exec 3<&0; "$@" </dev/null & server=$!
(read -r line <&3; kill -9 $server) & guard=$!
wait $server; kill $guard
case "$REMOVED" in */swb-kafka-*) rm -rf "$REMOVED";; esac"#;

/// Returns the folder with Kafka's jars, if it is installed.
pub(crate) fn jars() -> Option<PathBuf> {
    find("SWITCHBOARD_KAFKA", "kafka-jars", "org.apache.kafka:kafka_2.13:3.9.1 of Maven, in a folder")
}

/// Returns the command of a program of Kafka.
pub(crate) fn java(jars: &Path, options: &[&str]) -> Vec<String> {
    let class_path = format!("{}/*", jars.display());
    let mut command: Vec<_> =
        ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"].map(String::from).into();
    command.extend(options.iter().map(ToString::to_string));
    command.extend(["-cp".to_owned(), class_path]);
    command
}

impl Node {
    /// Returns the node that tests share.
    pub(crate) fn shared() -> Option<&'static Node> {
        static NODE: OnceLock<Option<Node>> = OnceLock::new();
        let start = || {
            let folder = std::env::temp_dir().join(format!("swb-kafka-{}", std::process::id()));
            // Of an earlier process with this number.
            let _ = std::fs::remove_dir_all(&folder);
            Some(Node::start_in(&jars()?, &folder, Some(&folder)))
        };
        NODE.get_or_init(start).as_ref()
    }

    /// Starts a node with the files of a folder, and waits until it responds.
    pub(crate) fn start(jars: &Path, folder: &Path) -> Node {
        Node::start_in(jars, folder, None)
    }

    fn start_in(jars: &Path, folder: &Path, removed: Option<&Path>) -> Node {
        for _ in 0..5 {
            // All at the same time, so that they differ.
            let ports = [0; 3].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
            let ports = ports.map(|listener| listener.local_addr().expect("it is bound").port());
            if let Some(node) = Node::try_start(jars, folder, removed, ports) {
                return node;
            }
        }
        panic!("Kafka ends at once, on five ports");
    }

    fn try_start(
        jars: &Path,
        folder: &Path,
        removed: Option<&Path>,
        [port, sasl_port, controller]: [u16; 3],
    ) -> Option<Node> {
        std::fs::create_dir_all(folder).expect("a folder");
        let (data, file) = (folder.join("data"), folder.join("server.properties"));
        let listeners = format!("PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}");
        let login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_me=\"secret\";";
        let settings = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\nadvertised.listeners={listeners}\n\
             listeners={listeners},CONTROLLER://127.0.0.1:{controller}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_plaintext.plain.sasl.jaas.config={login}\n\
             log.dirs={}\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             auto.create.topics.enable=false\n\
             broker.session.timeout.ms=1500\nbroker.heartbeat.interval.ms=300\nlog.cleaner.enable=false\n",
            data.display()
        );
        std::fs::write(&file, settings).expect("a file");
        if !data.is_dir() {
            let mut format = java(jars, &[]);
            format.extend(
                ["kafka.tools.StorageTool", "format", "-t", "HTZkOzgySDGb6NJ916U2ew", "-c"].map(String::from),
            );
            let output = Command::new(&format[0]).args(&format[1..]).arg(&file).output().expect("java");
            assert!(output.status.success(), "{output:?}");
        }
        let mut server = java(jars, &["-Xmx512m"]);
        server.push("kafka.Kafka".to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).args(server).arg(&file);
        command.env("REMOVED", removed.unwrap_or(Path::new("")));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut node = Node { child: command.spawn().expect("a shell"), port, sasl_port };
        let begun = Instant::now();
        while node.child.try_wait().expect("it is our child").is_none() {
            // ApiVersions, which the server responds to once it has read its files.
            if send(port, 18, 0, &[]).is_some() {
                return Some(node);
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "Kafka does not become ready");
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    /// Kills the server, and waits for its end.
    pub(crate) fn kill(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it is our child");
    }

    /// Deletes a topic, and waits until it is gone.
    pub(crate) fn delete_topic(&self, name: &str) {
        let body = [&[0, 0, 0, 1][..], &string(name), &5_000_i32.to_be_bytes()].concat();
        send(self.port, 20, 1, &body).expect("a response");
        loop {
            let body = [&[0, 0, 0, 1][..], &string(name)].concat();
            let response = send(self.port, 3, 1, &body).expect("a response");
            // One server without a rack and the controller, then the error of the topic.
            let host = 12 + usize::from(u16::from_be_bytes([response[8], response[9]])) - 2;
            let at = host + 4 + 2 + 4 + 4;
            if response[at..at + 2] == 3_i16.to_be_bytes() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Raises the number of partitions of a topic.
    pub(crate) fn create_partitions(&self, name: &str, partitions: i32) {
        let none = (-1_i32).to_be_bytes();
        let topic = [&string(name)[..], &partitions.to_be_bytes(), &none].concat();
        let body = [&[0, 0, 0, 1][..], &topic, &5_000_i32.to_be_bytes(), &[0]].concat();
        let response = send(self.port, 37, 0, &body).expect("a response");
        // The time, one topic and its name, then its error.
        let error = 4 + 4 + 2 + name.len();
        assert_eq!(response[error..error + 2], [0, 0], "{response:?}");
    }

    /// Removes the records before an offset from each of the partitions that has it.
    pub(crate) fn delete_records(&self, name: &str, partitions: i32, before: i64) {
        let mut body = [&[0, 0, 0, 1][..], &string(name), &partitions.to_be_bytes()].concat();
        for partition in 0..partitions {
            body.extend(partition.to_be_bytes());
            body.extend(before.to_be_bytes());
        }
        body.extend(5_000_i32.to_be_bytes());
        send(self.port, 21, 1, &body).expect("a response");
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Sends a request as any client would; returns the response behind its number.
fn send(port: u16, api: i16, version: i16, body: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut frame = [&api.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 7], &string("test")].concat();
    frame.extend(body);
    stream.write_all(&(frame.len() as i32).to_be_bytes()).ok()?;
    stream.write_all(&frame).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut response = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut response).ok()?;
    response.get(4..).map(Into::into)
}
