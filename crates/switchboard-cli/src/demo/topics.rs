//! Topics: subscribers of each protocol receive the publications of another one.

use super::{answers::Method, table::Row};
use crate::bus::peers::{Nats, Redis, Remote};
use bytes::Bytes;
use std::time::Duration;
use switchboard::Channel;
use switchboard_bus::Connect;
use switchboard_message::{Bus, Delivery, Publication, Subscription};
use switchboard_socket::Sub;
use tokio::sync::Mutex;

/// The message that is published.
const PRICE: &str = "12.5";
/// Topics and the subjects of NATS: tokens of a subject are levels of a topic.
const TOPICS: [&str; 4] = ["demo/native", "demo/zeromq", "demo/nats", "demo/redis"];
/// Pause before a message is published again to a ZeroMQ subscriber, whose subscription may still be on its way.
const AGAIN: Duration = Duration::from_millis(20);

/// Subscribes at `HOST:PORT`, and with NATS at `nats`, and publishes.
///
/// # Errors
/// When a connection cannot be opened.
pub(super) async fn rows(address: &str, nats: &str) -> Result<Vec<Row>, String> {
    let url = format!("tcp://{address}");
    let channel = Channel::connect(&url).await.map_err(|status| format!("connect to {url}: {status}"))?;
    let bus = Bus::over(channel);
    let subscription = bus.subscribe_encoded(TOPICS[0]).await.map_err(|status| status.to_string())?;
    let native = Mutex::new(subscription);
    let zeromq = Sub::connect(&url).await.map_err(|error| error.to_string())?;
    zeromq.subscribe(TOPICS[1]).map_err(|error| error.to_string())?;
    let nats = Mutex::new(subscribed_nats(nats).await?);
    let redis = Mutex::new(subscribed_redis(address).await?);
    let publish = async |topic: &str| {
        let publication = Publication::new(switchboard::Codec::Raw, Bytes::from_static(PRICE.as_bytes()));
        bus.publish_encoded(topic, publication).await.map(|_| ()).map_err(|status| status.to_string())
    };
    let method = Method::Topic;
    Ok(vec![
        Row::measure("topic, native, TCP", method, async || {
            publish(TOPICS[0]).await?;
            next(&mut *native.lock().await).await
        })
        .await,
        Row::measure("topic, ZeroMQ SUB, TCP", method, async || {
            loop {
                publish(TOPICS[1]).await?;
                if let Ok(received) = tokio::time::timeout(AGAIN, zeromq.recv()).await {
                    let message = received.map_err(|error| error.to_string())?;
                    return Ok(text(message.body()));
                }
            }
        })
        .await,
        Row::measure("topic, NATS, TCP", method, async || {
            publish(TOPICS[2]).await?;
            let message = nats.lock().await.message().await.map_err(|failure| failure.text())?;
            Ok(text(&message.payload))
        })
        .await,
        Row::measure("topic, Redis, TCP", method, async || {
            publish(TOPICS[3]).await?;
            let payload = redis.lock().await.message().await.map_err(|failure| failure.text())?;
            Ok(text(&payload))
        })
        .await,
    ])
}

async fn next(subscription: &mut Subscription<Bytes>) -> Result<String, String> {
    loop {
        match subscription.next().await.map_err(|status| status.to_string())? {
            Some(Delivery::Entry(entry)) => return Ok(text(entry.entry().bytes())),
            Some(_) => {}
            None => return Err("the subscription ended".to_owned()),
        }
    }
}

async fn subscribed_nats(address: &str) -> Result<Nats, String> {
    let connecting = async {
        let mut nats = Nats::connect(&Remote::at(address)).await?;
        nats.subscribe(&TOPICS[2].replace('/', "."), None)?;
        nats.confirm().await?;
        Ok(nats)
    };
    connecting.await.map_err(|failure: crate::call::Failure| failure.text())
}

async fn subscribed_redis(address: &str) -> Result<Redis, String> {
    let connecting = async {
        let mut redis = Redis::connect(&Remote::at(address)).await?;
        redis.subscribe(TOPICS[3]).await?;
        Ok(redis)
    };
    connecting.await.map_err(|failure: crate::call::Failure| failure.text())
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
