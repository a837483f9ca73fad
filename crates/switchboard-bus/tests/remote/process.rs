//! A server in another process, which is killed.

use crate::support::{entry, gap, with_history};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};
use switchboard::Server;
use switchboard_bus::{BusServer, Connect};
use switchboard_message::{Bus, GapReason};

/// Address of the server in the other process.
const URL: &str = "SWITCHBOARD_TEST_URL";

/// This program again, as a server that ends with the test.
struct Process(Child);

impl Process {
    /// Starts the server; returns its URL once it accepts connections.
    fn start(url: &str) -> (Process, String) {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--exact", "process::serves_until_it_is_killed"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let served = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("serving ").map(|(_, url)| url.to_owned()));
        (Process(child), served.expect("a server"))
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
#[ignore = "the server of the other test, in a process of its own"]
async fn serves_until_it_is_killed() {
    let server = Server::new().add(BusServer::new(with_history(100)));
    let running = server.listen(env::var(URL).unwrap()).start().await.unwrap();
    println!("serving {}", running.url());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn subscriptions_and_publications_outlive_a_killed_process() {
    for wire in ["", "?wire=grpc"] {
        let (mut process, url) = Process::start("tcp://127.0.0.1:0");
        let bus = Bus::connect(&(url.clone() + wire)).await.unwrap();
        let mut one = bus.subscribe::<u32>("t").await.unwrap();
        let mut all = bus.subscribe::<u32>(">").await.unwrap();
        bus.publish("t", &1_u32).await.unwrap();
        assert_eq!((entry(&mut one).await.0, entry(&mut all).await.0), (1, 1));
        process.kill();
        let publisher = bus.clone();
        let publishing = tokio::spawn(async move { publisher.publish("t", &2_u32).id("2").await });
        let (_process, _) = Process::start(&url);
        assert_eq!(publishing.await.unwrap().unwrap().offset, 1, "{wire}: the first entry of a new log");
        for subscription in [&mut one, &mut all] {
            assert_eq!(gap(subscription).await.reason, GapReason::Epoch, "{wire}");
            assert_eq!(entry(subscription).await, (2, 1), "{wire}");
        }
    }
}
