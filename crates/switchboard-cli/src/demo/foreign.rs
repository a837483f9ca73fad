//! gRPC, gRPC-Web and Connect: calls with the client of another project, `connectrpc`.

use super::{
    answers::{self, ALL, CACHEABLE, HALF_DUPLEX, Method},
    table::Row,
};
use crate::services::proto::{
    bench::BenchmarkMessageView,
    demo::{GreetReplyView, Note, NoteView, QueryReplyView, Tick, TickView, TotalView},
};
use connectrpc::{
    CodecFormat, ConnectError, Protocol, Spec, StreamType,
    client::{
        CallOptions, ClientConfig, HttpClient, call_bidi_stream, call_client_stream, call_server_stream,
        call_unary, call_unary_get, stream_iter,
    },
};

const GREET: Spec = Spec::client("/demo.v1.Greeter/Greet", StreamType::Unary);
const WATCH: Spec = Spec::client("/demo.v1.Greeter/Watch", StreamType::ServerStream);
const SUM: Spec = Spec::client("/demo.v1.Greeter/Sum", StreamType::ClientStream);
const CHAT: Spec = Spec::client("/demo.v1.Greeter/Chat", StreamType::BidiStream);
const QUERY: Spec = Spec::client("/demo.v1.Posts/Query", StreamType::Unary);
const MESSAGE: Spec = Spec::client("/bench.v1.Bench/Message", StreamType::Unary);

/// Calls over each wire to `url`.
///
/// # Errors
/// When the URL is none.
pub(super) async fn rows(url: &str) -> Result<Vec<Row>, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
    let (h1, h2) = (HttpClient::plaintext(), HttpClient::plaintext_http2_only());
    let (proto, json) = (CodecFormat::Proto, CodecFormat::Json);
    let mut rows = Vec::new();
    for (wire, transport, protocol, format, methods) in [
        ("gRPC, HTTP/2", &h2, Protocol::Grpc, proto, &ALL[..]),
        ("gRPC-Web, HTTP/1.1", &h1, Protocol::GrpcWeb, proto, &HALF_DUPLEX[..]),
        ("Connect proto, HTTP/1.1", &h1, Protocol::Connect, proto, &HALF_DUPLEX[..]),
        ("Connect proto, HTTP/2", &h2, Protocol::Connect, proto, &ALL[..]),
        ("Connect JSON, HTTP/1.1", &h1, Protocol::Connect, json, &HALF_DUPLEX[..]),
        ("Connect JSON, HTTP/2", &h2, Protocol::Connect, json, &ALL[..]),
    ] {
        let config = ClientConfig::new(uri.clone()).with_protocol(protocol).with_codec_format(format);
        let foreign = Foreign { transport: transport.clone(), config, get: false };
        foreign.call(wire, methods, &mut rows).await;
    }
    let config = ClientConfig::new(uri).with_protocol(Protocol::Connect).with_codec_format(json);
    let foreign = Foreign { transport: h1, config, get: true };
    foreign.call("Connect GET, HTTP/1.1", &CACHEABLE, &mut rows).await;
    Ok(rows)
}

struct Foreign {
    transport: HttpClient,
    config: ClientConfig,
    /// Unary requests go into the URL.
    get: bool,
}

/// A unary call; the view of the reply decides its type.
macro_rules! unary {
    ($self:ident, $spec:expr, $request:expr, $view:ident) => {{
        let (transport, config, options) = (&$self.transport, &$self.config, CallOptions::default());
        let reply = if $self.get {
            call_unary_get::<_, _, $view<'static>>(transport, config, $spec, $request, options).await?
        } else {
            call_unary::<_, _, $view<'static>>(transport, config, $spec, $request, options).await?
        };
        reply.into_owned()
    }};
}

impl Foreign {
    async fn call(&self, wire: &'static str, methods: &[Method], rows: &mut Vec<Row>) {
        for &method in methods {
            let call = async || self.answer(method).await.map_err(|error| error.to_string());
            rows.push(Row::measure(wire, method, call).await);
        }
    }

    async fn answer(&self, method: Method) -> Result<String, ConnectError> {
        let (transport, config, options) = (&self.transport, &self.config, CallOptions::default());
        Ok(match method {
            Method::Greet => answers::greet(unary!(self, GREET, answers::greet_request(), GreetReplyView)),
            Method::Query => answers::query(&unary!(self, QUERY, answers::query_request(), QueryReplyView)),
            Method::Message => {
                answers::message(&unary!(self, MESSAGE, answers::message_request(), BenchmarkMessageView))
            }
            Method::Watch => {
                let request = answers::watch_request();
                let mut stream =
                    call_server_stream::<_, _, TickView<'static>>(transport, config, WATCH, request, options)
                        .await?;
                let mut ticks = Vec::new();
                while let Some(tick) = stream.message::<Tick>().await? {
                    ticks.push(tick.to_owned_message());
                }
                ended(stream.error())?;
                answers::watch(&ticks)
            }
            Method::Sum => {
                let numbers = stream_iter(answers::numbers());
                let total =
                    call_client_stream::<_, _, TotalView<'static>>(transport, config, SUM, numbers, options)
                        .await?;
                answers::sum(&total.into_owned())
            }
            Method::Chat => {
                let mut chat =
                    call_bidi_stream::<_, Note, NoteView<'static>>(transport, config, CHAT, options).await?;
                let mut notes = Vec::new();
                for note in answers::notes() {
                    chat.send(note).await?;
                    notes.extend(chat.message::<Note>().await?.map(|note| note.to_owned_message()));
                }
                chat.close_send();
                notes.extend(chat.message::<Note>().await?.map(|note| note.to_owned_message()));
                ended(chat.error())?;
                answers::chat(&notes)
            }
        })
    }
}

/// A stream may end with an error after its last message.
fn ended(error: Option<&ConnectError>) -> Result<(), ConnectError> {
    error.cloned().map_or(Ok(()), Err)
}
