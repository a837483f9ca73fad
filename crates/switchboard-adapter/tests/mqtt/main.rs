//! Clients of MQTT on a server: what they may do, and what ends with them. Real clients are in `interop/mqtt`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod client;
mod limits;
mod messages;
mod sessions;
mod shared;
mod waiting;

use client::soon;
use std::time::Duration;
use switchboard::{Running, Server};
use switchboard_adapter::Mqtt;
use switchboard_message::{Bus, TopicOptions};

const AT_MOST_ONCE: switchboard_wire::mqtt::QoS = switchboard_wire::mqtt::QoS::AtMostOnce;
const AT_LEAST_ONCE: switchboard_wire::mqtt::QoS = switchboard_wire::mqtt::QoS::AtLeastOnce;
const EXACTLY_ONCE: switchboard_wire::mqtt::QoS = switchboard_wire::mqtt::QoS::ExactlyOnce;

async fn start(mqtt: &Mqtt) -> Running {
    Server::new().plugin(mqtt.clone()).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

/// Starts a server whose topics keep 20,000 entries.
async fn started() -> (Bus, Mqtt, Running) {
    let history = TopicOptions::new().history(20_000, Duration::MAX);
    let bus = Bus::builder().topics(">", history).unwrap().build();
    let mqtt = Mqtt::new(bus.clone());
    let running = start(&mqtt).await;
    (bus, mqtt, running)
}

/// Waits for a condition of the counters, which other threads change.
async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
