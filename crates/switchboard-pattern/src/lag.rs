//! Lag guard: a subscriber that measures how late it is, and ends with the reason when it is too late.
//!
//! A subscriber that is too slow falls behind, receives old messages, and loses others without an error. The guard, the
//! Suicidal Snail of chapter 5 of ZeroMQ's guide, ends instead: the application restarts it, reads a snapshot, or calls
//! a person. Three measures have a limit each:
//!
//! | measure | reason |
//! | --- | --- |
//! | time from the publisher's stamp to the receive | [`LagReason::Delay`] |
//! | messages that wait in the queue of the subscriber | [`LagReason::Unread`] |
//! | messages that the subscriber has not received, by their numbers | [`LagReason::Missing`] |
//!
//! A message has three frames: the topic, the stamp and the body. A stamp has 24 bytes in network order: the number of
//! the publisher's run, which is random; the number of the message in the run, from 1; and the time in microseconds
//! since 1970. The delay includes the difference of both clocks, which must be synchronized if the publisher is on
//! another machine.

mod meter;

pub use meter::{LagLimits, LagMeter, LagReason, LagStats, Stamp};

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use switchboard_core::clock;
use switchboard_socket::{Endpoint, Message, Pub, SocketOptions, SocketStats, Sub};

/// A PUB whose messages carry stamps.
///
/// ```
/// use std::time::Duration;
/// use switchboard_pattern::lag::{LagLimits, StampedPub, WatchedSub};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = StampedPub::bind("tcp://127.0.0.1:0").await?;
/// let mut limits = LagLimits::default();
/// limits.delay_max = Duration::from_secs(5);
/// let mut subscriber = WatchedSub::new(limits)?;
/// subscriber.connect_to(&publisher.endpoints()[0].to_string()).await?;
/// subscriber.subscribe("quotes")?;
/// # while publisher.stats().peers.iter().all(|peer| !peer.is_connected) { tokio::task::yield_now().await; }
/// # tokio::spawn(async move { loop {
/// publisher.send("quotes", "12.5").await?;
/// # tokio::task::yield_now().await; }
/// # #[allow(unreachable_code)] Ok::<_, switchboard_pattern::Error>(()) });
///
/// match subscriber.recv().await {
///     Ok(quote) => assert_eq!(quote.body(), &b"12.5"[..]),
///     Err(ended) => println!("{ended}"), // the reason, such as a delay of 7 s
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StampedPub {
    socket: Pub,
    run: u64,
    /// Number of the last message. Held while the message is passed to the socket, which keeps the order of the
    /// numbers.
    last: Arc<Mutex<u64>>,
}

impl StampedPub {
    /// Creates a publisher with default options and binds it.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind(endpoint: &str) -> Result<StampedPub> {
        let publisher = StampedPub::with_options(SocketOptions::default())?;
        publisher.socket.bind_to(endpoint).await?;
        Ok(publisher)
    }

    /// Creates a publisher without endpoints.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`], and [`ErrorKind::InvalidInput`] for a publisher that
    /// waits for slow subscribers: it would stop instead of the subscriber.
    pub fn with_options(options: SocketOptions) -> Result<StampedPub> {
        if options.queues.when_full == switchboard_socket::options::QueueFullPolicy::Wait {
            let text = "a publisher that waits for slow subscribers cannot be combined with a lag guard";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(StampedPub { socket: Pub::with_options(options)?, run: clock::random(), last: Default::default() })
    }

    /// Binds another endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::bind_to`].
    pub async fn bind_to(&self, endpoint: &str) -> Result<Endpoint> {
        Ok(self.socket.bind_to(endpoint).await?)
    }

    /// Connects to another endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        Ok(self.socket.connect_to(endpoint).await?)
    }

    /// Publishes a message with the present time. A slow subscriber loses it, and a guard notices. Cancel safe.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::send`].
    pub async fn send(&self, topic: impl Into<Bytes>, body: impl Into<Bytes>) -> Result<()> {
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let stamp = Stamp { run: self.run, number: *last + 1, time_us: now_us() };
            self.socket.try_send([topic.into(), Bytes::copy_from_slice(&stamp.to_bytes()), body.into()])?;
            *last += 1;
        }
        // A publisher in a loop leaves the connections of its thread no time otherwise.
        tokio::task::consume_budget().await;
        Ok(())
    }

    /// Returns the endpoints that the publisher is bound to.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.socket.endpoints()
    }

    /// Returns the counters of the socket and of each subscriber.
    pub fn stats(&self) -> SocketStats {
        self.socket.stats()
    }
}

/// A received message of a [`StampedPub`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StampedMessage {
    topic: Bytes,
    body: Bytes,
    delay: Duration,
}

impl StampedMessage {
    /// Returns the topic.
    pub fn topic(&self) -> &Bytes {
        &self.topic
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the time since the publisher sent the message; zero if the clock of the publisher is ahead.
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

/// Error of a [`WatchedSub`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Ended {
    /// A limit was exceeded: the subscription has ended for good, and its socket is closed.
    Lagged(LagReason),
    /// The socket failed.
    Socket(Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Lagged(reason) => write!(f, "the subscription has ended: {reason}"),
            Ended::Socket(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Ended {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Ended::Lagged(_) => None,
            Ended::Socket(error) => Some(error),
        }
    }
}

/// A SUB that ends when it lags; see [`StampedPub`] for an example.
#[derive(Debug)]
pub struct WatchedSub {
    socket: Sub,
    meter: LagMeter,
}

impl WatchedSub {
    /// Creates a subscriber without endpoints and topics.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`].
    pub fn new(limits: LagLimits) -> Result<WatchedSub> {
        WatchedSub::with_options(limits, SocketOptions::default())
    }

    /// Creates a subscriber with options of its socket.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::new`].
    pub fn with_options(limits: LagLimits, options: SocketOptions) -> Result<WatchedSub> {
        Ok(WatchedSub { socket: Sub::with_options(options)?, meter: LagMeter::new(limits) })
    }

    /// Connects to another publisher.
    ///
    /// # Errors
    /// Returns the errors of [`switchboard_socket::Socket::connect_to`].
    pub async fn connect_to(&self, endpoint: &str) -> Result<()> {
        Ok(self.socket.connect_to(endpoint).await?)
    }

    /// Subscribes to the topics with a prefix. With [`LagLimits::missing_max`], the prefix must be empty.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for a prefix that hides messages whose numbers are to be counted, and above
    /// `limits.subscriptions_max`.
    pub fn subscribe(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        if self.meter.limits().missing_max.is_some() && !prefix.as_ref().is_empty() {
            let text = "missing messages are counted (missing_max) by a subscriber of all topics only; \
                        subscribe to \"\", or remove the limit";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(self.socket.subscribe(prefix)?)
    }

    /// Receives a message, and measures. Cancel safe: no message is lost.
    ///
    /// # Errors
    /// Returns [`Ended::Lagged`] when a limit is exceeded, and from then on; [`Ended::Socket`] for the errors of the
    /// socket. A message without a stamp is skipped and counted.
    pub async fn recv(&mut self) -> Result<StampedMessage, Ended> {
        loop {
            if let Some(reason) = self.meter.ended() {
                return Err(Ended::Lagged(reason));
            }
            let message = self.socket.recv().await.map_err(|error| Ended::Socket(error.into()))?;
            let unread = match self.meter.limits().unread_max {
                Some(_) => self.socket.stats().peers.iter().map(|peer| peer.unread).sum(),
                None => 0,
            };
            let Some((stamp, topic, body)) = split(&message) else {
                self.meter.count_invalid();
                continue;
            };
            match self.meter.measure(stamp, now_us(), unread) {
                Ok(delay) => return Ok(StampedMessage { topic, body, delay }),
                Err(reason) => {
                    tracing::warn!(%reason, "a lag guard ends its subscription");
                    self.socket.close().await;
                    return Err(Ended::Lagged(reason));
                }
            }
        }
    }

    /// Returns the measures.
    pub fn stats(&self) -> LagStats {
        self.meter.stats()
    }
}

fn split(message: &Message) -> Option<(Stamp, Bytes, Bytes)> {
    match message.frames() {
        [topic, stamp, body] => Some((Stamp::from_bytes(stamp)?, topic.clone(), body.clone())),
        _ => None,
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros().try_into().unwrap_or(u64::MAX)
}
