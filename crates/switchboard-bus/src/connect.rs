//! A bus whose topics are those of another process.

use crate::{remote::ServiceBus, v1::BusClient};
use std::future::Future;
use switchboard::{Channel, Codec, Result};
use switchboard_message::Bus;

/// Connects a [`Bus`] to the topics of another process, which serves them with [`BusServer`](crate::BusServer).
///
/// It is a trait because `Bus` is in a crate without connections: with the trait in scope, `Bus::connect(url)` returns
/// the type of `Bus::new()`. Every wire that has streams of replies will do; the native wire is the default, and
/// `tcp://host:8080?wire=grpc` selects gRPC.
///
/// ```
/// use switchboard::Server;
/// use switchboard_bus::{BusServer, Connect};
/// use switchboard_message::{Bus, Delivery};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard::Result<()> {
/// let topics = BusServer::new(Bus::new());
/// let server = Server::new().add(topics).listen("tcp://127.0.0.1:0").start().await?;
///
/// let bus = Bus::connect(&server.url()).await?;
/// let mut quotes = bus.subscribe::<f64>("quotes/*").await?;
/// bus.publish("quotes/acme", &12.5).await?;
/// let Some(Delivery::Entry(quote)) = quotes.next().await? else { panic!("a gap") };
/// assert_eq!((quote.topic().name(), *quote), ("quotes/acme", 12.5));
/// # Ok(())
/// # }
/// ```
///
/// # Failures
/// A subscription survives a lost connection and a restarted server: it begins again after the last entry, with pauses
/// that grow to 5 seconds and are random in part. Entries that are missing then are a
/// [`Delivery::Gap`](switchboard_message::Delivery::Gap). Its `next` fails only if the server refuses it for good. The
/// first attempt is not repeated: the future of a subscription fails if the server cannot be reached.
///
/// A publication with an [id](switchboard_message::Publish::id) is repeated for 30 seconds while the server is
/// unavailable; one without is repeated only if the server certainly did not receive it.
pub trait Connect: Sized {
    /// Connects to a URL and waits for the first connection.
    ///
    /// # Errors
    /// Returns the errors of [`Channel::connect`].
    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Uses a channel, such as one with credentials or several servers. They must have the same topics.
    fn over(channel: Channel) -> Self;
}

impl Connect for Bus {
    async fn connect(url: &str) -> Result<Bus> {
        Ok(Bus::over(Channel::connect(url).await?))
    }

    fn over(channel: Channel) -> Bus {
        Bus::remote(ServiceBus::new(BusClient::new(channel)), Codec::Postcard)
    }
}
