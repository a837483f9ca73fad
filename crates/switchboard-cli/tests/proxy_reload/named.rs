//! Servers that say who they are, in calls that last as long as a test wants.

use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard::{
    Call, Channel, ClientMethod, Codec, Cx, Kind, MethodInfo, Receiver, Reply, Result, Running, Sender,
    Server, Service, ServiceInfo, Status, stream::stream_reply,
};
use tokio::sync::Notify;

static INFO: ServiceInfo = ServiceInfo {
    name: "test.Named",
    methods: &[
        MethodInfo::new("Who", Kind::Unary),
        MethodInfo::new("Hold", Kind::Unary),
        MethodInfo::new("Chat", Kind::Bidi),
    ],
    descriptor: &[],
};

static WHO: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Named/Who" };
static HOLD: ClientMethod = ClientMethod { service: &INFO, index: 1, path: "test.Named/Hold" };
static CHAT: ClientMethod = ClientMethod { service: &INFO, index: 2, path: "test.Named/Chat" };

/// A server on a port of its own.
pub(crate) struct Named {
    pub(crate) running: Running,
    pub(crate) address: String,
    /// Calls that are held.
    held: Arc<AtomicUsize>,
    released: Arc<Notify>,
}

struct Handler {
    name: &'static str,
    held: Arc<AtomicUsize>,
    released: Arc<Notify>,
}

/// Counts down however the call ends.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Named {
    pub(crate) async fn start(name: &'static str) -> Named {
        let (held, released) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let handler = Handler { name, held: held.clone(), released: released.clone() };
        let running = Server::new().add(handler).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let address = running.addresses()[0].to_string().replace("tcp://", "");
        Named { running, address, held, released }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Answers a call that is held.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    pub(crate) fn connections(&self) -> u64 {
        self.running.stats().connections
    }
}

impl Service for Handler {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (codec, name) = (call.codec(), self.name);
        match call.method() {
            0 => {
                let (_, cx) = call.into_one()?;
                let from = cx.metadata().text("x-from").unwrap_or_default();
                Ok(Reply::one(Bytes::from(format!("{name}{from}")), cx))
            }
            1 => {
                let (_, cx) = call.into_one()?;
                self.held.fetch_add(1, Ordering::SeqCst);
                let _held = Held(self.held.clone());
                self.released.notified().await;
                Ok(Reply::one(Bytes::from(name), cx))
            }
            2 => {
                let (requests, cx) = call.into_many();
                let mut requests = Receiver::of_request(requests, codec, decode);
                let chat = move |_: Arc<Cx>, into: Sender<String>| async move {
                    while let Some(text) = requests.next().await? {
                        into.send(format!("{name}: {text}")).await?;
                    }
                    Ok(())
                };
                Ok(stream_reply(cx, codec, encode, chat))
            }
            other => Err(Status::unimplemented(format!("no method number {other}"))),
        }
    }
}

fn encode(text: &impl AsRef<str>, _: Codec) -> Result<Bytes> {
    Ok(text.as_ref().to_owned().into())
}

fn decode(_: Codec, bytes: Bytes) -> Result<String> {
    String::from_utf8(bytes.into()).map_err(|_| Status::internal("no text"))
}

/// Who answers.
pub(crate) async fn who(channel: &Channel) -> Result<String> {
    unary(channel, &WHO).await
}

/// Who answers, when that is let go.
pub(crate) async fn hold(channel: &Channel) -> Result<String> {
    unary(channel, &HOLD).await
}

async fn unary(channel: &Channel, method: &'static ClientMethod) -> Result<String> {
    let call = channel.unary(method, Codec::Proto, Ok(Bytes::new()), decode);
    call.await.map(switchboard::Response::into_inner)
}

pub(crate) async fn chat(channel: &Channel) -> Result<(Sender<String>, Receiver<String>)> {
    channel.bidi(&CHAT, Codec::Proto, encode, decode).await
}
