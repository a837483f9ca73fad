//! The memory budget of a server, and peers of HTTP: those that do not read, and those that send much.

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Http2, WINDOW_UPDATE, call, frame, soon, whole_call,
};
use switchboard::{
    Call, Channel, ClientMethod, Code, Codec, Kind, Limit, MemoryStats, MethodInfo, Reply, Result, Running,
    Server, Service, ServiceInfo, Status,
};

static BLOBS: ServiceInfo = ServiceInfo {
    name: "test.Blobs",
    methods: &[MethodInfo::new("Blob", Kind::Unary), MethodInfo::new("Mirror", Kind::Unary)],
    descriptor: &[],
};
static MIRROR: ClientMethod = ClientMethod { service: &BLOBS, index: 1, path: "test.Blobs/Mirror" };

/// Answers with as many bytes as the text of the request says, or with the request.
struct Blobs;

impl Service for Blobs {
    fn info(&self) -> &'static ServiceInfo {
        &BLOBS
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let is_mirror = call.method() == 1;
        let (bytes, cx) = call.into_one()?;
        if is_mirror {
            return Ok(Reply::one(bytes, cx));
        }
        let size = str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        Ok(Reply::one(vec![7u8; size.ok_or_else(|| Status::invalid_argument("no number"))?], cx))
    }
}

async fn server(budget: u64) -> Running {
    let server = Server::new().add(Blobs).listen("tcp://127.0.0.1:0").limit(Limit::MemoryBytesMax, budget);
    server.start().await.unwrap()
}

/// Waits for what the server counts.
async fn until(running: &Running, holds: impl Fn(&MemoryStats) -> bool) {
    let reached = async {
        while !holds(&running.memory()) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(std::time::Duration::from_secs(20), reached).await.is_err() {
        panic!("never reached: {:?}", running.memory());
    }
}

async fn mirror(channel: &Channel, bytes: usize) -> Result<usize> {
    let call = channel.unary(&MIRROR, Codec::Proto, Ok(vec![1u8; bytes]), |_, reply| Ok(reply.len()));
    call.await.map(switchboard::Response::into_inner)
}

/// A message in its envelope.
fn envelope(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn more_room(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

#[tokio::test]
async fn grpc_peer_that_does_not_read_is_paused_and_gets_all_of_it_when_it_reads() {
    const BUDGET: u64 = 4 << 20;
    const REPLY: usize = 100_000;
    const CALLS: u32 = 80;
    let running = server(BUDGET).await;
    let mut greedy = Http2::open(&running, &[]).await;
    for number in 0..CALLS {
        let ask = envelope(REPLY.to_string().as_bytes());
        greedy.send(&whole_call(number * 2 + 1, "/test.Blobs/Blob", "application/grpc", &ask)).await.unwrap();
    }
    // Its window takes 64 KiB; all else is held here.
    until(&running, |memory| memory.paused == 1).await;
    let memory = running.memory();
    assert!(memory.held > BUDGET / 100 * 80 && memory.held <= BUDGET, "{memory:?}");
    assert_eq!((memory.pauses, memory.refused, memory.dropped), (1, 0, 0), "{memory:?}");
    for wire in ["", "?wire=grpc", "?wire=connect&http=1"] {
        let others = Channel::connect(&format!("{}{wire}", running.url())).await.unwrap();
        for _ in 0..20 {
            assert_eq!(soon(mirror(&others, 1000)).await.unwrap(), 1000);
        }
    }

    greedy.send(&more_room(0, 1 << 30)).await.unwrap();
    for number in 0..CALLS {
        greedy.send(&more_room(number * 2 + 1, 1 << 30)).await.unwrap();
    }
    let (mut bytes, mut ended) = (0, 0);
    while ended < CALLS {
        let frame = soon(greedy.next()).await.unwrap();
        if frame.kind == DATA {
            bytes += frame.payload.len();
        }
        // The trailers.
        ended += u32::from(frame.kind == HEADERS && frame.flags & END_STREAM != 0);
    }
    assert_eq!(bytes, CALLS as usize * (REPLY + 5));
    until(&running, |memory| memory.held == 0 && memory.paused == 0).await;
}

#[tokio::test]
async fn large_uploads_count_as_they_come_and_are_refused_when_there_is_no_room() {
    const BUDGET: u64 = 2 << 20;
    let running = server(BUDGET).await;
    let small = envelope(&[0; 10_000]);
    let mut half = Http2::open(&running, &[]).await;
    let head = frame(HEADERS, END_HEADERS, 1, &call("/test.Blobs/Mirror", "application/grpc"));
    half.send(&[head, frame(DATA, 0, 1, &small[..5_000])].concat()).await.unwrap();
    until(&running, |memory| memory.held >= 5_000).await;
    // Each is in the middle of a message.
    let mut uploads = Vec::new();
    let part = &envelope(&[0; 50_000])[..40_000];
    while running.memory().held < BUDGET / 100 * 92 {
        let mut peer = Http2::open(&running, &[]).await;
        let head = frame(HEADERS, END_HEADERS, 1, &call("/test.Blobs/Mirror", "application/grpc"));
        let held = running.memory().held;
        let parts = part.chunks(10_000).flat_map(|part| frame(DATA, 0, 1, part));
        peer.send(&head.into_iter().chain(parts).collect::<Vec<_>>()).await.unwrap();
        until(&running, |memory| memory.held >= held + 40_000).await;
        uploads.push(peer);
    }
    for wire in ["?wire=grpc", "?wire=grpc-web", "?wire=connect"] {
        let channel = Channel::connect(&format!("{}{wire}", running.url())).await.unwrap();
        assert_eq!(soon(mirror(&channel, 1000)).await.unwrap(), 1000, "{wire}: small ones are served");
        let status = soon(mirror(&channel, 1 << 20)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{wire}: {status}");
        let text = "no room for the rest of a large request: this server holds ";
        assert!(status.message().contains(text), "{wire}: {status}");
    }
    // A small one that has begun may end.
    half.send(&frame(DATA, END_STREAM, 1, &small[5_000..])).await.unwrap();
    let mut got = 0;
    while got < small.len() {
        let frame = soon(half.next_of(DATA)).await.expect("an answer");
        got += frame.payload.len();
    }
    drop(uploads);
    until(&running, |memory| memory.held == 0 && memory.paused == 0).await;
    let channel = Channel::connect(&format!("{}?wire=grpc", running.url())).await.unwrap();
    assert_eq!(soon(mirror(&channel, 1 << 20)).await.unwrap(), 1 << 20);
}
