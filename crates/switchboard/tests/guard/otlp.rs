//! Traces and metrics as a collector gets them.

use super::*;
use serde_json::{Value, json};
use std::{sync::Mutex, time::Duration};
use switchboard::{
    Code,
    otlp::{Otlp, Settings},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream},
    net::TcpListener,
    task::JoinHandle,
};

/// A collector: what was posted, by path.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<(String, Value)>>>);

impl Sink {
    async fn listen(&self) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sink = self.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufStream::new(stream);
                let (mut path, mut length, mut key) = (String::new(), 0, false);
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    if let Some(rest) = line.strip_prefix("POST ") {
                        path = rest.split(' ').next().unwrap().to_owned();
                    }
                    match line.trim().to_ascii_lowercase().split_once(": ") {
                        Some(("content-length", value)) => length = value.parse().unwrap(),
                        Some(("x-key", "secret")) => key = true,
                        _ => {}
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                assert!(key, "the header comes with every request");
                sink.0.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        (url, task)
    }

    /// All spans that have come, by name and kind.
    fn spans(&self) -> Vec<Value> {
        let posts = self.0.lock().unwrap();
        let traces = posts.iter().filter(|(path, _)| path == "/v1/traces");
        traces
            .flat_map(|(_, body)| {
                let resource = &body["resourceSpans"][0];
                assert_eq!(resource["resource"]["attributes"][0], attribute("service.name", "shop"));
                resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
            })
            .collect()
    }

    fn span(&self, name: &str, kind: u8) -> Value {
        let spans = self.spans();
        let found = spans.iter().filter(|span| span["name"] == name && span["kind"] == kind);
        let found: Vec<_> = found.cloned().collect();
        assert_eq!(found.len(), 1, "{name}: {spans:?}");
        found[0].clone()
    }
}

fn attribute(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

fn settings() -> Settings {
    let mut settings = Settings::new("shop");
    settings.headers = vec![("x-key", "secret".to_owned())];
    settings.every = Duration::from_secs(3600);
    settings
}

const CLIENT: u8 = 3;
const SERVER: u8 = 2;

#[tokio::test]
async fn calls_are_spans_of_one_trace_across_hops() {
    let sink = Sink::default();
    let (url, _task) = sink.listen().await;
    let otlp = Otlp::start(&url, None, settings()).unwrap();
    let (behind, seen) = start(Server::new().layer(otlp.incoming())).await;
    let next = Channel::connect(&behind.url()).await.unwrap().layer(otlp.outgoing());
    let probe = Probe { next: Some(next), ..Probe::default() };
    let front =
        Server::new().layer(otlp.incoming()).add(probe).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = Channel::connect(&front.url()).await.unwrap();
    // The call behind hangs until the time of the one in front is over.
    let relay = call::<_, Vec<u8>>(&channel, &RELAY, &vec![1u8]).timeout(Duration::from_millis(200));
    let traced = relay.meta("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(failed(traced.await).code(), Code::DeadlineExceeded);
    seen.until(|seen| seen.hanging() == 0).await;
    soon(async {
        while sink.spans().len() < 3 {
            otlp.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    let front_span = sink.span("test.Probe/Relay", SERVER);
    let out = sink.span("test.Probe/Hang", CLIENT);
    let behind_span = sink.span("test.Probe/Hang", SERVER);
    for span in [&front_span, &out, &behind_span] {
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(span["status"]["code"], 2);
    }
    assert_eq!(front_span["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(out["parentSpanId"], front_span["spanId"]);
    assert_eq!(behind_span["parentSpanId"], out["spanId"]);
    let attributes = front_span["attributes"].as_array().unwrap();
    for wanted in [attribute("rpc.service", "test.Probe"), attribute("network.protocol.name", "native")] {
        assert!(attributes.contains(&wanted), "{attributes:?}");
    }
    assert_eq!((otlp.sent(), otlp.dropped()), (3, 0));
}

#[tokio::test]
async fn streams_are_spans_until_their_end_and_unsampled_calls_are_none() {
    let sink = Sink::default();
    let (url, _task) = sink.listen().await;
    let otlp = Otlp::start(&url, None, settings()).unwrap();
    let (running, _) = start(Server::new().layer(otlp.incoming())).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    let mut counted = count(&channel, 2, 1).await.unwrap();
    while counted.next().await.unwrap().is_some() {}
    let mut unlucky = count(&channel, 13, 1).await.unwrap();
    while let Ok(Some(_)) = unlucky.next().await {}
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let _: Vec<u8> = call::<_, Vec<u8>>(&channel, &ECHO, &vec![1u8])
        .meta("traceparent", unsampled)
        .await
        .unwrap()
        .into_inner();
    soon(async {
        while sink.spans().len() < 2 {
            otlp.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    let spans = sink.spans();
    assert!(spans.iter().all(|span| span["name"] == "test.Probe/Count" && span["parentSpanId"].is_null()));
    assert_eq!(spans.iter().filter(|span| span["status"]["message"] == "13 is unlucky").count(), 1);
    // None of those that begin here.
    let none = Otlp::start(&url, None, Settings { share: 0.0, ..settings() }).unwrap();
    let (quiet, _) = start(Server::new().layer(none.incoming())).await;
    super::mirror(&Channel::connect(&quiet.url()).await.unwrap(), vec![1]).await.unwrap();
    none.flush().await.unwrap();
    assert_eq!((none.sent(), none.dropped(), sink.spans().len()), (0, 0, 2));
}

#[tokio::test]
async fn counters_are_metrics() {
    let sink = Sink::default();
    let (url, _task) = sink.listen().await;
    let otlp = Otlp::start(&url, None, settings()).unwrap();
    let (running, _) = start(Server::new()).await;
    let client = Client::on(&running, "", Codec::Postcard).await;
    for _ in 0..3 {
        client.echo().await.unwrap();
    }
    failed(client.call::<()>(&FAIL, &"no").await);
    let running = Arc::new(running);
    let stats = running.clone();
    otlp.metrics(move || stats.stats()).unwrap();
    otlp.flush().await.unwrap();
    let posts = sink.0.lock().unwrap();
    let (path, body) = posts.last().unwrap();
    assert_eq!(path, "/v1/metrics");
    let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
    let points = metric("switchboard.calls")["sum"]["dataPoints"].as_array().unwrap();
    let of = |code: &str| {
        let point = points.iter().find(|point| {
            point["attributes"].as_array().unwrap().contains(&attribute("rpc.response.status_code", code))
        });
        point.unwrap()["asInt"].clone()
    };
    assert_eq!((of("ok"), of("not_found")), (json!("3"), json!("1")));
    let times = &metric("rpc.server.call.duration")["histogram"]["dataPoints"][0];
    let counts = times["bucketCounts"].as_array().unwrap();
    let sum: u64 = counts.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!((times["count"].clone(), sum), (json!("3"), 3));
    assert_eq!(counts.len(), times["explicitBounds"].as_array().unwrap().len() + 1);
}

#[tokio::test]
async fn spans_that_a_collector_does_not_accept_are_counted_and_delay_no_call() {
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let otlp = Otlp::start(&url, None, Settings { queue_max: 4, ..settings() }).unwrap();
    let (running, _) = start(Server::new().layer(otlp.incoming())).await;
    let channel = Channel::connect(&running.url()).await.unwrap();
    super::mirror(&channel, vec![1]).await.unwrap();
    let flushing = tokio::spawn({
        let otlp = otlp.clone();
        async move { otlp.flush().await }
    });
    let _held = silent.accept().await.unwrap();
    for _ in 0..10 {
        super::mirror(&channel, vec![1]).await.unwrap();
    }
    assert_eq!((otlp.sent(), otlp.dropped()), (0, 6));
    flushing.abort();

    // No collector listens there.
    let otlp = Otlp::start("http://127.0.0.1:1", None, settings()).unwrap();
    let (running, _) = start(Server::new().layer(otlp.incoming())).await;
    super::mirror(&Channel::connect(&running.url()).await.unwrap(), vec![1]).await.unwrap();
    otlp.flush().await.unwrap();
    assert_eq!((otlp.sent(), otlp.dropped()), (0, 1));
    let wrong = Otlp::start("collector:4317", None, settings()).unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
}
