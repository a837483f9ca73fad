//! Calls of every kind through generated code, in this process and over a connection.

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchboard::{
    Channel, ClientMethod, Code, Codec, Cx, Idempotency, Kind, Params, Receiver, Result, Sender, Server,
    Status, codegen::Bytes,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Debug)]
enum CalcError {
    DivisionByZero,
}

impl From<CalcError> for Status {
    fn from(error: CalcError) -> Status {
        match error {
            CalcError::DivisionByZero => Status::invalid_argument("division by zero"),
        }
    }
}

/// One method of every kind.
#[switchboard::service(name = "test.v1.Calc")]
trait Calc {
    /// The sum.
    #[switchboard(read_only)]
    async fn add(&self, a: i64, b: i64) -> Result<i64>;
    #[switchboard(idempotent)]
    async fn divide(&self, a: i64, b: i64) -> Result<(i64, i64), CalcError>;
    async fn mirror(&self, cx: &Cx, point: Point) -> Result<Point>;
    async fn ping(&self) -> Result<()>;
    #[switchboard(oneway, name = "Tally")]
    async fn note(&self, amount: u64) -> Result<()>;
    async fn noted(&self) -> Result<u64>;
    async fn count(&self, from: u32, to: u32, out: Sender<u32>) -> Result<()>;
    async fn refuse(&self, out: Sender<u32>) -> Result<(), CalcError>;
    async fn sum(&self, input: Receiver<u32>) -> Result<u64>;
    #[switchboard(spawn)]
    async fn double(&self, input: Receiver<u32>, cx: &Cx, out: Sender<u32>) -> Result<()>;
}

#[derive(Default)]
struct Abacus {
    noted: AtomicU64,
}

impl Calc for Abacus {
    async fn add(&self, a: i64, b: i64) -> Result<i64> {
        Ok(a + b)
    }

    async fn divide(&self, a: i64, b: i64) -> Result<(i64, i64), CalcError> {
        if b == 0 {
            return Err(CalcError::DivisionByZero);
        }
        Ok((a / b, a % b))
    }

    async fn mirror(&self, cx: &Cx, point: Point) -> Result<Point> {
        cx.reply_metadata("method", cx.method().name)?;
        cx.reply_trailer("axis", "diagonal")?;
        if point == (Point { x: 0, y: 0 }) {
            return Err(Status::out_of_range("the origin has no mirror image"));
        }
        Ok(Point { x: point.y, y: point.x })
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    async fn note(&self, amount: u64) -> Result<()> {
        self.noted.fetch_add(amount, Ordering::Relaxed);
        Ok(())
    }

    async fn noted(&self) -> Result<u64> {
        Ok(self.noted.load(Ordering::Relaxed))
    }

    async fn count(&self, from: u32, to: u32, out: Sender<u32>) -> Result<()> {
        for number in from..to {
            out.send(number).await?;
        }
        Ok(())
    }

    async fn refuse(&self, _: Sender<u32>) -> Result<(), CalcError> {
        Err(CalcError::DivisionByZero)
    }

    async fn sum(&self, mut input: Receiver<u32>) -> Result<u64> {
        let mut sum = 0;
        while let Some(number) = input.next().await? {
            sum += u64::from(number);
        }
        Ok(sum)
    }

    async fn double(&self, mut input: Receiver<u32>, _: &Cx, out: Sender<u32>) -> Result<()> {
        while let Some(number) = input.next().await? {
            out.send(number * 2).await?;
        }
        Ok(())
    }
}

async fn all<T>(mut messages: Receiver<T>) -> Result<Vec<T>> {
    let mut out = Vec::new();
    while let Some(message) = messages.next().await? {
        out.push(message);
    }
    Ok(out)
}

/// Calls every method once.
async fn exercise(calc: &CalcClient) -> Result<()> {
    assert_eq!(*calc.add(1, 2).await?, 3);
    assert_eq!(*calc.divide(7, 2).await?, (3, 1));
    let refused = calc.divide(7, 0).await.expect_err("no quotient");
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "division by zero"));
    assert_eq!(*calc.mirror(Point { x: 1, y: 2 }).await?, Point { x: 2, y: 1 });
    // Metadata that a handler has added to its reply is sent with its error.
    let refused = calc.mirror(Point { x: 0, y: 0 }).await.expect_err("no image");
    let added = |name| refused.metadata().text(name);
    assert_eq!((added("method"), added("axis")), (Some("Mirror"), Some("diagonal")));
    calc.ping().await?;
    assert_eq!(all(calc.count(3, 6).await?).await?, [3, 4, 5]);
    let refused = all(calc.refuse().await?).await.expect_err("a refusal");
    assert_eq!(refused.message(), "division by zero");

    let upload = calc.sum().await?;
    for number in 1..=4 {
        upload.send(number).await?;
    }
    assert_eq!(*upload.finish().await?, 10);

    let (numbers, mut doubles) = calc.double().await?;
    numbers.send(4).await?;
    assert_eq!(doubles.next().await?, Some(8));
    numbers.finish();
    assert_eq!(doubles.next().await?, None);
    Ok(())
}

#[tokio::test]
async fn every_kind_in_this_process() {
    exercise(&CalcClient::local(Abacus::default())).await.unwrap();
    exercise(&CalcClient::local(Abacus::default()).with_codec(Codec::Json)).await.unwrap();
}

#[tokio::test]
async fn every_kind_over_a_connection() {
    let service = Arc::new(Abacus::default());
    let server = Server::new()
        .add(CalcServer::from_arc(service.clone()))
        .listen("tcp://127.0.0.1:0")
        .start()
        .await
        .unwrap();
    let calc = CalcClient::connect(&format!("{}?connections=1", server.url())).await.unwrap();
    exercise(&calc).await.unwrap();
    exercise(&calc.clone().with_codec(Codec::Json)).await.unwrap();

    calc.note(3).await.unwrap();
    calc.note(4).await.unwrap();
    // A connection serves its calls in order, so the notes have been processed when this call returns.
    assert_eq!(*calc.noted().await.unwrap(), 7);
    server.kill();
}

/// The service as declared in another build.
mod other {
    use switchboard::Result;

    #[switchboard::service(name = "test.v1.Calc")]
    pub trait Calc {
        /// Has other types, and postcard would read the numbers without an error.
        async fn add(&self, a: i64, b: i32) -> Result<i64>;
        /// Has the same signature at another index.
        async fn noted(&self) -> Result<u64>;
    }
}

#[tokio::test]
async fn caller_of_another_build_gets_the_name_of_the_differing_method() {
    let server = Server::new().add(CalcServer::new(Abacus::default())).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let calc = other::CalcClient::connect(&running.url()).await.unwrap();
    let status = calc.add(1, 2).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let schemas = [&CALC, &other::CALC].map(|info| info.methods[0].schema.unwrap().to_string());
    assert!(status.message().contains("test.v1.Calc/Add"), "{status}");
    assert!(schemas.iter().all(|schema| status.message().contains(schema)), "{status}");
    // Other methods work, and codecs with names in the messages need no matching schema.
    assert_eq!(*calc.noted().await.unwrap(), 0);
    assert_eq!(*calc.with_codec(Codec::Json).add(1, 2).await.unwrap(), 3);
    // The check also applies in this process.
    let local = other::CalcClient::new(Channel::local(CalcServer::new(Abacus::default())));
    let status = local.add(1, 2).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(schemas.iter().all(|schema| status.message().contains(schema)), "{status}");
}

#[tokio::test]
async fn every_kind_over_http_as_json() {
    let server = Server::new().add(CalcServer::new(Abacus::default())).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    for wire in ["grpc", "grpc-web", "connect"] {
        let url = format!("{}?wire={wire}", server.url());
        exercise(&CalcClient::connect(&url).await.unwrap())
            .await
            .unwrap_or_else(|status| panic!("{wire}: {status}"));
    }
}

#[tokio::test]
async fn json_is_an_object_of_arguments_and_a_bare_result() {
    static DIVIDE: ClientMethod = ClientMethod { service: &CALC, index: 1, path: "test.v1.Calc/Divide" };
    let channel = Channel::local(CalcServer::new(Abacus::default()));
    let call = |json: &'static str| {
        channel.unary(&DIVIDE, Codec::Json, Ok(Bytes::from_static(json.as_bytes())), |_, bytes| Ok(bytes))
    };
    assert_eq!(&call(r#"{"b": 2, "a": 7}"#).await.unwrap()[..], b"[3,1]");
    let status = call(r#"{"a": 7}"#).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("CalcDivideRequest: missing field `b`"), "{}", status.message());
}

#[tokio::test]
async fn methods_are_called_by_name_without_generated_code() {
    let server = Server::new().add(CalcServer::new(Abacus::default())).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    let address = server.url();
    for url in [
        address.clone(),
        format!("{address}?wire=grpc"),
        format!("{address}?wire=connect"),
        format!("{address}?wire=rpcx"),
        format!("{address}?wire=jsonrpc"),
    ] {
        let channel = Channel::connect(&url).await.unwrap();
        let sum: i64 = *channel.call("test.v1.Calc/Add").json(&json!({"a": 40, "b": 2})).await.unwrap();
        assert_eq!(sum, 42, "{url}");
        let request = json!({"point": {"x": 1, "y": 2}});
        let mirrored = channel.call("test.v1.Calc/Mirror").json::<Value>(&request).await.unwrap();
        assert_eq!(*mirrored, json!({"x": 2, "y": 1}), "{url}");
        let wrong = channel.call("test.v1.Calc").json::<Value>(&json!({})).await.unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument, "{url}");
        assert!(wrong.message().contains("expected package.Service/Method"), "{wrong}");
        if !url.contains("jsonrpc") && !url.contains("rpcx") {
            let counted = channel.call("test.v1.Calc/Count").json_stream(&json!({"from": 1, "to": 4})).await;
            assert_eq!(all::<u32>(counted.unwrap()).await.unwrap(), [1, 2, 3], "{url}");
        }
    }
    let channel = Channel::connect(&address).await.unwrap();
    let encoded = channel.call("test.v1.Calc/Add").encoded(Codec::Json, r#"{"a":1,"b":2}"#).await.unwrap();
    assert_eq!(&encoded[..], b"3");
}

/// Replies as streams that handlers return.
#[switchboard::service(name = "test.v1.Series")]
trait Series {
    async fn squares(&self, to: u32, cx: &Cx) -> Result<impl Stream<Item = Result<u32>>>;
    async fn quotients(
        &self,
        input: Receiver<i64>,
    ) -> Result<impl Stream<Item = Result<i64, CalcError>>, CalcError>;
}

struct Numbers {
    step: u32,
}

impl Series for Numbers {
    async fn squares(&self, to: u32, cx: &Cx) -> Result<impl Stream<Item = Result<u32>>> {
        if cx.metadata().text("deny").is_some() {
            return Err(Status::permission_denied("no squares"));
        }
        // Borrows from the service.
        let squares = (0..to).map(move |number| number * number * self.step);
        Ok(futures_stream(squares.map(Ok)))
    }

    async fn quotients(
        &self,
        mut input: Receiver<i64>,
    ) -> Result<impl Stream<Item = Result<i64, CalcError>>, CalcError> {
        let first = input.next().await.ok().flatten().unwrap_or_default();
        let quotients = (0..3).map(move |divisor| 2 - divisor);
        Ok(futures_stream(quotients.map(move |by| first.checked_div(by).ok_or(CalcError::DivisionByZero))))
    }
}

/// The items of an iterator as a stream.
fn futures_stream<T>(mut items: impl Iterator<Item = T> + Unpin) -> impl Stream<Item = T> {
    struct Items<I>(I);
    impl<I: Iterator + Unpin> Stream for Items<I> {
        type Item = I::Item;
        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<I::Item>> {
            std::task::Poll::Ready(self.0.next())
        }
    }
    Items(std::iter::from_fn(move || items.next()))
}

/// Declares the service with a sender instead of a stream.
mod series_with_a_sender {
    use switchboard::{Cx, Result, Sender};

    #[switchboard::service(name = "test.v1.Series")]
    pub trait Series {
        async fn squares(&self, to: u32, cx: &Cx, out: Sender<u32>) -> Result<()>;
    }
}

#[tokio::test]
async fn handlers_return_streams() {
    let server = Server::new().add(SeriesServer::new(Numbers { step: 2 })).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    for options in ["", "?wire=grpc", "?wire=connect"] {
        let series = SeriesClient::connect(&format!("{}{options}", server.url())).await.unwrap();
        assert_eq!(all(series.squares(4).await.unwrap()).await.unwrap(), [0, 2, 8, 18], "{options}");
        let long = all(series.squares(20_000).await.unwrap()).await.unwrap();
        assert_eq!(long.len(), 20_000, "{options}");
        let denied = match series.squares(4).meta("deny", "yes").await {
            Ok(stream) => all(stream).await.unwrap_err(),
            Err(status) => status,
        };
        assert_eq!(denied.to_string(), "permission_denied: no squares", "{options}");

        let (numbers, mut quotients) = series.quotients().await.unwrap();
        numbers.send(12).await.unwrap();
        numbers.finish();
        assert_eq!(quotients.next().await.unwrap(), Some(6), "{options}");
        assert_eq!(quotients.next().await.unwrap(), Some(12), "{options}");
        assert_eq!(quotients.next().await.unwrap_err().message(), "division by zero", "{options}");
    }
    assert_eq!(SERIES.methods[0].kind, Kind::ServerStream);
    assert_eq!(SERIES.methods[1].kind, Kind::Bidi);
    let other = series_with_a_sender::SeriesClient::connect(&server.url()).await.unwrap();
    assert_eq!(all(other.squares(2).await.unwrap()).await.unwrap(), [0, 2], "the same fingerprint");
}

#[tokio::test]
async fn the_api_has_fakes() {
    async fn total(calc: &impl CalcApi) -> Result<i64> {
        calc.add(calc.add(1, 2).await?, 3).await
    }

    struct Fake;

    impl CalcApi for Fake {
        async fn add(&self, _: i64, _: i64) -> Result<i64> {
            Ok(42)
        }
        async fn mirror(&self, point: Point) -> Result<Point> {
            Ok(point)
        }
    }

    assert_eq!(total(&Fake).await.unwrap(), 42);
    let missing = [Fake.ping().await.unwrap_err(), Fake.double().await.map(drop).unwrap_err()];
    assert_eq!(
        missing.map(|status| status.to_string()),
        [
            "unimplemented: the fake has no test.v1.Calc/Ping",
            "unimplemented: the fake has no test.v1.Calc/Double"
        ]
    );
    assert_eq!(total(&CalcClient::local(Abacus::default())).await.unwrap(), 6);
}

#[test]
fn the_table_has_the_properties_of_the_attributes() {
    let method = |name: &str| CALC.methods.iter().find(|method| method.name == name).unwrap();
    assert_eq!(CALC.name, "test.v1.Calc");
    assert_eq!(method("Add").idempotency, Idempotency::NoSideEffects);
    assert_eq!(method("Divide").idempotency, Idempotency::Idempotent);
    assert!(method("Tally").oneway);
    assert!(method("Double").spawn);
    let kinds = ["Add", "Count", "Sum", "Double"].map(|name| method(name).kind);
    assert_eq!(kinds, [Kind::Unary, Kind::ServerStream, Kind::ClientStream, Kind::Bidi]);
    assert!(CALC.methods.iter().all(|method| method.schema.is_some()));
}

#[tokio::test]
async fn json_rpc_takes_arguments_by_name_and_by_position() {
    let server = Server::new().add(CalcServer::new(Abacus::default()));
    let running = server.listen("tcp://127.0.0.1:0").start().await.unwrap();
    let stream = tokio::net::TcpStream::connect(running.url().trim_start_matches("tcp://")).await.unwrap();
    let mut stream = BufReader::new(stream);
    for (call, answer) in [
        (r#""Calc.Add","params":[40,2]"#, r#""result":42"#),
        (r#""Calc.Add","params":{"b":2,"a":40}"#, r#""result":42"#),
        (r#""Calc.Add","params":[1]"#, r#""error":{"code":-32602"#),
        (r#""Calc.Divide","params":[7,0]"#, r#""error":{"code":-32602,"message":"division by zero""#),
        (r#""test.v1.Calc.Mirror","params":[{"x":1,"y":2}]"#, r#""result":{"x":2,"y":1}"#),
        (r#""Calc.Ping","params":[]"#, r#""result":null"#),
        (r#""Calc.Tally","params":[5]"#, r#""result":null"#),
        (r#""Calc.Noted""#, r#""result":5"#),
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{call}}}"#);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains(answer), "{call}: {line}");
    }
    assert_eq!(CALC.methods[2].params, Params::Arguments(&["point"]));
    assert_eq!(CALC.methods[6].params, Params::Arguments(&["from", "to"]));
}
