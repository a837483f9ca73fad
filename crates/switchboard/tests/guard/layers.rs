//! Layers around calls.

use super::*;
use bytes::Bytes;
use std::sync::Mutex;
use switchboard::{Call, Code, Compression, Layer, Next, Reply, layer, layer::BoxFuture};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what passes.
struct Writer(&'static str, Log);

impl Layer for Writer {
    fn name(&self) -> &str {
        self.0
    }

    fn call<'a>(&'a self, call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async move {
            let (name, log) = (self.0, &self.1);
            log.lock().unwrap().push(format!("{name} in {}", call.cx().method().name));
            let reply = next.call(call).await;
            let how = reply.as_ref().map_or_else(|status| status.code().name(), |_| "ok");
            log.lock().unwrap().push(format!("{name} out {how}"));
            reply
        })
    }
}

#[tokio::test]
async fn layers_run_in_their_order_on_every_wire() {
    let log = Log::default();
    let server =
        Server::new().concurrency(10).layer(Writer("outer", log.clone())).layer(Writer("inner", log.clone()));
    assert_eq!(server.layers(), ["concurrency limits", "layer outer", "layer inner"]);
    let (running, _) = start(server).await;
    for client in Client::each(&running).await {
        assert_eq!(client.echo().await.unwrap(), [1, 2], "{}", client.wire);
        let seen = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(
            seen,
            ["outer in Echo", "inner in Echo", "inner out ok", "outer out ok"],
            "{}",
            client.wire
        );
        let status = failed(soon(client.call::<()>(&FAIL, &"no")).await);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no"), "{}", client.wire);
        let seen = std::mem::take(&mut *log.lock().unwrap());
        assert_eq!(seen[2..], ["inner out not_found", "outer out not_found"], "{}", client.wire);
    }
    // Handlers that run on threads of their own.
    let channel = Channel::connect(&running.url()).await.unwrap();
    let thread: String = ask(&channel, &WHERE, &()).await.unwrap();
    assert!(!thread.is_empty());
    assert_eq!(log.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn layers_refuse_change_and_answer() {
    let server = Server::new()
        .layer(layer::from_fn("refuses", |call, next| {
            Box::pin(async move {
                match call.cx().metadata().text("x-refuse") {
                    Some(why) => Err(Status::permission_denied(why)),
                    None => next.call(call).await,
                }
            })
        }))
        .layer(layer::from_fn("doubles", |mut call, next| {
            Box::pin(async move {
                call.each_message(|message| Ok(twice(&message)))?;
                let mut reply = next.call(call).await?;
                reply.metadata_mut().insert("x-doubled", "yes")?;
                reply.each_message(|message| Ok(twice(&message)))
            })
        }));
    let (running, seen) = start(server).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    for compression in [Compression::None, Compression::Zstd] {
        let sent = vec![7u8; 2000];
        let call =
            channel.unary(&MIRROR, Codec::Postcard, Ok(Bytes::from(sent)), |_, reply: Bytes| Ok(reply));
        let reply = call.compression(compression).await.unwrap();
        assert_eq!(reply.meta().text("x-doubled"), Some("yes"));
        assert_eq!(*reply, vec![7u8; 8000]);
    }
    // Messages of streams, of which three bytes arrive as six.
    let upload = tally(&channel).await.unwrap();
    for _ in 0..3 {
        upload.send(3).await.unwrap();
    }
    // Only the first half of the reply is read.
    assert_eq!(*upload.finish().await.unwrap(), (3, 18));
    let bytes = channel.server_stream(
        &COUNT,
        Codec::Postcard,
        serde::encode(&(2u32, 600usize), Codec::Postcard),
        |_, message: Bytes| Ok(message.len()),
    );
    // The request is read as far as its first half goes; replies of 602 bytes come twice.
    let mut counted = bytes.compression(Compression::Gzip).await.unwrap();
    for _ in 0..2 {
        assert_eq!(counted.next().await.unwrap(), Some(1204));
    }
    assert_eq!(counted.next().await.unwrap(), None);
    let call = call::<_, ()>(&channel, &HANG, &1u64).meta("x-refuse", "not you");
    let status = failed(call.await);
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "not you"));
    assert_eq!(seen.hanging(), 0);
}

fn twice(message: &[u8]) -> Bytes {
    [message, message].concat().into()
}

#[tokio::test]
async fn layer_that_panics_ends_its_call_alone() {
    let server = Server::new().concurrency(1).layer(layer::from_fn("panics", |call, next| {
        Box::pin(async move {
            assert!(call.cx().metadata().is_empty(), "a layer that panics");
            next.call(call).await
        })
    }));
    let (running, _) = start(server).await;
    for client in [
        Client::on(&running, "", Codec::Postcard).await,
        Client::on(&running, "?wire=grpc", Codec::Json).await,
    ] {
        let call = client.call::<Vec<u8>>(&ECHO, &[1u8]).meta("x-a", "b");
        assert_eq!(failed(call.await).code(), Code::Internal, "{}", client.wire);
        assert_eq!(client.echo().await.unwrap(), [1, 2], "{}", client.wire);
    }
}

/// A value for the handler.
#[derive(Debug, PartialEq)]
struct Tenant(String);

/// Adds the tenant of a call that names one.
struct Tenants;

impl Layer for Tenants {
    fn call<'a>(&'a self, mut call: Call, next: Next<'a>) -> BoxFuture<'a, Result<Reply>> {
        if let Some(tenant) = call.cx().metadata().text("x-tenant").map(str::to_owned) {
            call.cx_mut().extensions_mut().insert(Tenant(tenant));
        }
        next.call(call)
    }
}

/// Writes down the tenant that it finds, behind all layers.
struct Handler(Log);

impl switchboard::Service for Handler {
    fn info(&self) -> &'static switchboard::ServiceInfo {
        Probe::default().info()
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (message, cx) = call.into_one()?;
        let found = cx.extensions();
        let shared = found.get::<Shared>().map(|shared| shared.0);
        self.0.lock().unwrap().push(format!("{:?} {shared:?}", found.get::<Tenant>()));
        Ok(Reply::one(message, cx))
    }
}

#[tokio::test]
async fn layers_hand_values_to_handlers_for_one_call() {
    let log = Log::default();
    let server = Server::new().layer(Tenants).add(Handler(log.clone())).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let channel = Channel::connect(&running.url()).await.unwrap();
    for tenant in [None, Some("a"), None, Some("b"), None] {
        let call = support::call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8]);
        let call = tenant.into_iter().fold(call, |call, tenant| call.meta("x-tenant", tenant));
        soon(call).await.unwrap();
    }
    let none = || "None None".to_owned();
    let some = |tenant: &str| format!("Some(Tenant({tenant:?})) None");
    assert_eq!(*log.lock().unwrap(), [none(), some("a"), none(), some("b"), none()]);
}

#[tokio::test]
async fn servers_and_channels_hand_values_to_all_calls() {
    let log = Log::default();
    let server = Server::new().extension(Shared(7)).extension(Tenant("all".into())).layer(Tenants);
    let running = server.add(Handler(log.clone())).listen("tcp://127.0.0.1:0").start().await.unwrap();
    for wire in ["native", "connect"] {
        let channel = Channel::connect(&format!("{}?wire={wire}", running.url())).await.unwrap();
        // A layer of the channel sends the tenant that the channel has.
        let named = channel.layer(layer::from_fn("tenant", |mut call, next| {
            Box::pin(async move {
                if let Some(Tenant(tenant)) = call.cx().extensions().get() {
                    let tenant = tenant.clone();
                    call.cx_mut().metadata_mut().insert("x-tenant", tenant)?;
                }
                next.call(call).await
            })
        }));
        let (first, second) = (named.extension(Tenant("a".into())), named.extension(Tenant("b".into())));
        let later = first.extension(Shared(8)).layer(layer::from_fn("later", |call, next| next.call(call)));
        for channel in [&channel, &named, &first, &second, &later, &later.extension(Tenant("c".into()))] {
            soon(channel.call("test.Probe/Echo").json::<Vec<u8>>(&[1])).await.unwrap();
        }
        let found = |tenant: &str| format!("Some(Tenant({tenant:?})) Some(7)");
        let expected = ["all", "all", "a", "b", "a", "c"].map(found);
        assert_eq!(std::mem::take(&mut *log.lock().unwrap()), expected, "{wire}");
    }
}

/// A value of the whole server.
struct Shared(u32);
