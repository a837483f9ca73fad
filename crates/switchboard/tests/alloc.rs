//! Memory for calls and connections, counted by the allocator of this test.
//!
//! The tests take turns, each on one thread of its own runtime, and the counters are those of that thread.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]
#![allow(unsafe_code, reason = "an allocator that counts can only be written so")]

mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{Read, Write},
    net::TcpStream,
};
use support::{raw::*, *};
use switchboard::{
    Channel, Limit, Running, Server,
    guard::{Concurrency, Rate, Rule},
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Sizes of the latest allocations, as a ring.
    static SIZES: [Cell<usize>; 16] = const { [const { Cell::new(0) }; 16] };
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

fn add(bytes: i64) {
    let now = BYTES.get() + bytes;
    BYTES.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        SIZES.with(|sizes| sizes[COUNT.get() as usize % sizes.len()].set(layout.size()));
        COUNT.set(COUNT.get() + 1);
        add(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `test` with its server, clients and counters on this thread.
fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Lets the tasks of this thread run until they wait.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Allocations of one `call` after warm-up: the least of twenty averages, since tables grow now and then.
async fn allocations(mut call: impl AsyncFnMut()) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..21 {
        let before = COUNT.get();
        for _ in 0..100 {
            call().await;
        }
        least = least.min((COUNT.get() - before) / 100);
    }
    least
}

/// Sizes of the latest `count` allocations, the oldest first.
fn latest(count: u64) -> Vec<usize> {
    let end = COUNT.get();
    SIZES.with(|sizes| (end - count..end).map(|at| sizes[at as usize % sizes.len()].get()).collect())
}

#[test]
fn unary_call_allocates_only_for_received_messages() {
    on_one_thread(async {
        let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
        let text = vec![1u8; 100];
        let least = allocations(async || {
            let reply: Vec<u8> = ask(&channel, &ECHO, &text).await.unwrap();
            assert_eq!(reply.len(), 100);
        })
        .await;
        // server: the message that the handler gets; the request is a share of the read buffer, and messages
        // are sent from memory that both sides reuse client: the reply out of the read buffer, the message
        // that the caller gets. The caller here runs after the connection's task has looked for its buffer
        // again, so replies are copied instead of shared.
        assert_eq!(least, 3, "allocations a call");
    });
}

#[test]
fn guards_allocate_nothing() {
    on_one_thread(async {
        let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
        let server = server
            .rate(Rate::per_second(1e6).by_peer())
            .rate(Rate::per_second(1e6).by_metadata("tenant"))
            .rule(Rule::methods("test.Probe/E*").public().addresses(["127.0.0.0/8"]))
            .deadline_max(std::time::Duration::from_secs(10))
            .concurrency(Concurrency::auto())
            .service_concurrency("test.Probe", 50)
            .method_concurrency("*", 20);
        let running = server.start().await.unwrap();
        let channel = switchboard::Channel::connect(&running.url()).await.unwrap();
        let text = vec![1u8; 100];
        let call = async || {
            let reply: Vec<u8> = ask(&channel, &ECHO, &text).await.unwrap();
            assert_eq!(reply.len(), 100);
        };
        // As many as without them.
        assert_eq!(allocations(call).await, 3, "allocations a call");
    });
}

#[cfg(feature = "auth")]
#[test]
fn the_whole_chain_allocates_nothing() {
    use switchboard::{
        auth::{Caller, Tokens},
        guard::Fair,
    };

    on_one_thread(async {
        let server = || Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
        let bare = server().start().await.unwrap();
        let guarded = server()
            .deadline_max(std::time::Duration::from_secs(30))
            .auth(Tokens::default().token("s3cr3t", Caller::new("alice")))
            .rate(Rate::per_second(1e8).by_caller())
            .concurrency(Concurrency::auto())
            .fair(Fair::by_caller())
            .access_log(1_000_000);
        let guarded = guarded.start().await.unwrap();
        let mut least = Vec::new();
        for running in [&bare, &guarded] {
            let channel = Channel::builder(&running.url()).token("s3cr3t").connect().await.unwrap();
            let text = vec![1u8; 100];
            let count = allocations(async || {
                let reply: Vec<u8> = ask(&channel, &ECHO, &text).await.unwrap();
                assert_eq!(reply.len(), 100);
            });
            least.push(count.await);
        }
        // A token's value is copied where it arrives; to send it and to look at it is free.
        assert_eq!(least, [4, 4], "allocations a call");
    });
}

/// Allocations for a message of a stream and its reply when nothing else is in flight: the text that is sent,
/// its encoding, a part of the read buffer, the handler's text and its answer, and the same again on the way
/// back.
const STREAM_MAX: u64 = 9;

#[test]
fn message_of_a_stream_allocates_no_more_than_its_bound() {
    on_one_thread(async {
        let (_running, channel, _) = served("tcp://127.0.0.1:0").await;
        let (sender, mut replies) = chat(&channel).await.unwrap();
        let text = "x".repeat(100);
        let least = allocations(async || {
            sender.send(text.clone()).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap().len(), 100);
        })
        .await;
        assert!(least <= STREAM_MAX, "{least} allocations a message, bound {STREAM_MAX}");
    });
}

#[test]
fn unary_call_of_a_fleet_allocates_no_more() {
    on_one_thread(async {
        let (one, _, _) = served("tcp://127.0.0.1:0").await;
        let (two, _, _) = served("tcp://127.0.0.1:0").await;
        let url = format!("{},{}", one.url(), two.url());
        let channel = switchboard::Channel::connect(&url).await.unwrap();
        settle().await;
        let text = vec![1u8; 100];
        let least = allocations(async || {
            let reply: Vec<u8> = ask(&channel, &ECHO, &text).await.unwrap();
            assert_eq!(reply.len(), 100);
        })
        .await;
        assert_eq!(least, 3, "allocations a call");
    });
}

#[cfg(feature = "proto")]
mod protobuf {
    use super::*;
    use buffa_types::google::protobuf::{__buffa::view::AnyView, Any, StringValue};
    use switchboard::{
        Call, ClientMethod, Codec, Encoded, Kind, MethodInfo, Reply, Service, ServiceInfo, codec::proto,
    };

    /// Answers about a message that is packed into another, as generated code would do it: `Name` takes a view and
    /// makes a text, `Rename` changes the view and encodes it again.
    struct Types;

    static TYPES: ServiceInfo = ServiceInfo {
        name: "test.Types",
        methods: &[MethodInfo::new("Name", Kind::Unary), MethodInfo::new("Rename", Kind::Unary)],
        descriptor: &[],
    };
    static NAME: ClientMethod = ClientMethod { service: &TYPES, index: 0, path: "test.Types/Name" };
    static RENAME: ClientMethod = ClientMethod { service: &TYPES, index: 1, path: "test.Types/Rename" };

    /// A channel to a server of it, and a message for it.
    async fn types() -> (Running, Channel, Any) {
        let running = Server::new().add(Types).listen("tcp://127.0.0.1:0").start().await.unwrap();
        let channel = Channel::connect(&running.url()).await.unwrap();
        let request = Any {
            type_url: "type.googleapis.com/test.Message".into(),
            value: vec![1u8; 500].into(),
            ..Any::default()
        };
        (running, channel, request)
    }

    impl Service for Types {
        fn info(&self) -> &'static ServiceInfo {
            &TYPES
        }

        async fn call(&self, call: Call) -> switchboard::Result<Reply> {
            let (codec, method) = (call.codec(), call.method());
            let (bytes, cx) = call.into_one()?;
            let bytes = proto::view_bytes::<Any>(codec, bytes)?;
            let mut request = proto::view::<AnyView<'_>>(&bytes)?;
            if method == RENAME.index {
                request.type_url = "OK";
                let reply = Encoded::<Any>::of_view(&request, &cx)?;
                return Ok(Reply::one(reply.into_reply(codec)?, cx));
            }
            let name = request.type_url.rsplit('/').next().unwrap_or_default();
            let reply = StringValue { value: name.to_owned(), ..StringValue::default() };
            let bytes = proto::encode(&reply, codec)?;
            Ok(Reply::one(bytes, cx))
        }
    }

    #[test]
    fn unary_call_of_protobuf_allocates_less() {
        on_one_thread(async {
            let (_running, channel, request) = types().await;
            let call = async || {
                let bytes = proto::encode(&request, Codec::Proto);
                let call = channel.unary(&NAME, Codec::Proto, bytes, proto::decode::<StringValue>);
                assert_eq!(call.await.unwrap().value, "test.Message");
            };
            assert_eq!(allocations(call).await, 3, "allocations a call");
            // Requests and replies are encoded into a block of the thread, and the view is of the read buffer. Left
            // are the text that the handler makes, the reply out of the client's read buffer, with two bytes of
            // protobuf before its text, and the text that the caller gets.
            let before = COUNT.get();
            call().await;
            assert_eq!(latest(COUNT.get() - before), [12, 14, 12]);
        });
    }

    /// Allocations of a call by gRPC, both sides together: nearly all of them are made by the HTTP/2
    /// libraries.
    #[cfg(feature = "http")]
    const GRPC_MAX: u64 = 37;

    #[cfg(feature = "http")]
    #[test]
    fn unary_call_of_grpc_allocates_no_more_than_its_bound() {
        on_one_thread(async {
            let (running, _, request) = types().await;
            let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
            let call = async || {
                let bytes = proto::encode(&request, Codec::Proto);
                let call = channel.unary(&NAME, Codec::Proto, bytes, proto::decode::<StringValue>);
                assert_eq!(call.await.unwrap().value, "test.Message");
            };
            let least = allocations(call).await;
            assert!(least <= GRPC_MAX, "{least} allocations a call, bound {GRPC_MAX}");
        });
    }

    #[test]
    fn unary_call_that_is_only_viewed_allocates_the_reply_that_the_caller_keeps() {
        on_one_thread(async {
            let (_running, channel, request) = types().await;
            let call = async || {
                let bytes = proto::encode(&request, Codec::Proto);
                let call = channel.unary(&RENAME, Codec::Proto, bytes, proto::decode::<Any>).encoded();
                let reply = call.await.unwrap();
                let reply = reply.view().unwrap();
                assert_eq!((reply.type_url, reply.value.len()), ("OK", 500));
            };
            assert_eq!(allocations(call).await, 1, "allocations a call");
        });
    }
}

/// A probe with these limits on this thread.
async fn start(limits: &[(Limit, u64)]) -> Running {
    let server = Server::new().add(Probe::default()).listen("tcp://127.0.0.1:0");
    let server = limits.iter().fold(server, |server, (limit, value)| server.limit(*limit, *value));
    server.start().await.expect("start")
}

/// Upper bound for the memory of an idle connection, in bytes.
const IDLE_MAX: i64 = 3 << 10;

/// Measures the server's memory for connections, each after one call and `hang` more at once, once it has
/// fallen below `most`; in bytes a connection.
async fn idle_bytes(hang: usize, most: i64) -> i64 {
    const PEERS: i64 = 200;
    let running = start(&[]).await;
    let mut first = Raw::open(&running).await;
    first.echo(1).await;
    let text = message(&b"echo".to_vec());
    let mut hello = [PREFACE.to_vec(), method(0, "test.Probe/Echo"), method(2, "test.Probe/Hang")].concat();
    for id in 0..hang {
        hello.extend(open_call(WHOLE, 2, 10 + id as u32, &message(&"")));
    }
    for id in 0..hang {
        hello.extend(frame(CANCEL, 0, 0, 10 + id as u32, &[]));
    }
    hello.extend(open_call(WHOLE, 0, 1, &text));
    let address = running.url().replace("tcp://", "");
    let mut peers = Vec::with_capacity(PEERS as usize);
    settle().await;
    let before = BYTES.get();
    for _ in 0..PEERS {
        // Sockets of the standard library: what they cost is the kernel's.
        let mut peer = TcpStream::connect(&address).unwrap();
        peer.write_all(&hello).unwrap();
        peers.push(peer);
        settle().await;
    }
    let mut replies = [0; 4096];
    for peer in &mut peers {
        peer.set_nonblocking(true).unwrap();
        let mut read = 0;
        while read < 8 + 12 + 30 + 12 + text.len() {
            match peer.read(&mut replies) {
                Ok(n) => read += n,
                Err(_) => settle().await,
            }
        }
    }
    let busy = (BYTES.get() - before) / PEERS;
    // Memory is released after a second without traffic.
    let mut idle = busy;
    for _ in 0..500 {
        if idle < most {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        idle = (BYTES.get() - before) / PEERS;
    }
    println!("{busy} bytes a connection after its calls, {idle} when idle");
    idle
}

#[test]
fn idle_connection_holds_no_buffers() {
    on_one_thread(async {
        // The first round fills the few buffers that a thread keeps for all its connections.
        idle_bytes(0, i64::MAX).await;
        let idle = idle_bytes(0, IDLE_MAX).await;
        assert!(idle < IDLE_MAX, "{idle} bytes");
    });
}

#[test]
fn connection_that_was_busy_gives_its_memory_back() {
    on_one_thread(async {
        let most = IDLE_MAX + 1024;
        idle_bytes(0, i64::MAX).await;
        let busy = idle_bytes(100, most).await;
        assert!(busy < most, "{busy} bytes after 100 calls at once");
    });
}

/// How much the memory of this thread grows at most while `work` runs.
async fn growth(work: impl Future<Output = ()>) -> i64 {
    settle().await;
    let before = BYTES.get();
    PEAK.set(before);
    work.await;
    PEAK.get() - before
}

#[test]
fn oversized_message_is_not_gathered() {
    on_one_thread(async {
        let running = start(&[]).await;
        let mut raw = Raw::open(&running).await;
        raw.echo(1).await;
        let chunk = vec![0; 64 << 10];
        let grown = growth(async {
            raw.send(&header(64 << 20, CALL, WHOLE, 0, 2)).await;
            for _ in 0..1024 {
                raw.send(&chunk).await;
            }
            raw.expect().await.status();
            raw.echo(3).await;
        })
        .await;
        assert!(grown < 1 << 20, "{grown} bytes for 64 MiB that are not read");
        // Memory for an declared length is allocated only as its bytes arrive.
        let grown = growth(async {
            for id in 0..20 {
                let mut raw = Raw::open(&running).await;
                raw.send(&header(4 << 20, CALL, WHOLE, 0, id)).await;
                raw.send(&[0; 100]).await;
                settle().await;
                std::mem::forget(raw);
            }
        })
        .await;
        assert!(grown < 8 << 20, "{grown} bytes for 20 declared messages");
    });
}

#[test]
fn reader_that_does_not_read_holds_little() {
    on_one_thread(async {
        let running = start(&[]).await;
        // A stream of replies without end and all the credit in the world.
        let mut raw = Raw::open(&running).await;
        raw.echo(1).await;
        let grown = growth(async {
            raw.send(&open_call(WHOLE, 5, 1, &message(&(u32::MAX, 100_000usize)))).await;
            for _ in 0..20_000 {
                raw.send(&frame(CREDIT, 0, 0, 1, &[0xFF, 0xFF, 0xFF, 0x7F])).await;
            }
            settle().await;
        })
        .await;
        assert!(grown < 2 << 20, "{grown} bytes for a stream that is not read");
        // Many calls in one write, each with a large reply.
        let running = start(&[(Limit::OutboxBytesMax, 1 << 20)]).await;
        let mut raw = Raw::open(&running).await;
        raw.echo(1).await;
        let upload = message(&vec![1u8; 200_000]);
        let grown = growth(async {
            // The answers are as large as the requests: what comes in must wait for what goes out.
            for id in 0..200 {
                let sent = open_call(WHOLE, 0, id, &upload);
                let sending = tokio::io::AsyncWriteExt::write_all(&mut raw.io, &sent);
                if tokio::time::timeout(std::time::Duration::from_millis(100), sending).await.is_err() {
                    return;
                }
            }
            panic!("40 MB were taken though no answer was read");
        })
        .await;
        assert!(grown < 8 << 20, "{grown} bytes of responses that are not read");
    });
}

/// The address of a server that reads up to the first call, sends `again` until it is 16 MiB, and ends the call.
fn unreading_server(again: &[u8]) -> String {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // What a client cannot send is to wait in its own memory, not in the kernel's.
    listener.set_recv_buffer_size(16 << 10).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let listener = std::net::TcpListener::from(listener);
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let batch = again.repeat((64 << 10) / again.len());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Preface, SETTINGS, METHOD, CALL.
        socket.read_exact(&mut vec![0; 8 + 12 + 30 + 12 + TALLY.path.len() + 12 + 8]).unwrap();
        socket.write_all(PREFACE).unwrap();
        for _ in 0..256 {
            socket.write_all(&batch).unwrap();
        }
        socket.write_all(&frame(END, 1, 5, 0, &[])).unwrap();
        // Until the client is gone.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    });
    url
}

#[test]
fn server_that_floods_and_does_not_read_costs_a_client_little() {
    on_one_thread(async {
        for (what, again) in [
            ("credit", frame(CREDIT, 0, 0, 0, &[1, 0, 0, 0])),
            ("pings", frame(PING, 0, 0, 7, &[])),
            ("wrong metadata", frame(HEAD, 0, 0, 77, &[1])),
        ] {
            let url = unreading_server(&again);
            let channel = switchboard::Channel::builder(&url).connections(1).connect().await.unwrap();
            let grown = growth(async {
                let upload = tally(&channel).await.unwrap();
                let end = soon(async {
                    loop {
                        if let Err(status) = upload.send(8 << 10).await {
                            return status;
                        }
                    }
                });
                // All that came before it was read.
                assert_eq!(end.await.code(), switchboard::Code::NotFound);
            })
            .await;
            assert!(grown < 3 << 20, "{what}: {grown} bytes");
        }
    });
}
