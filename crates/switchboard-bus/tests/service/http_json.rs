//! The commands of the documentation page: HTTP/JSON without a client of ours.

use crate::support::serve;
use switchboard::Running;
use switchboard_message::Bus;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Sends a request and returns the lines of its response.
async fn post(server: &Running, method: &str, accept: &str, body: &str) -> BufReader<TcpStream> {
    let url = server.url();
    let mut io = TcpStream::connect(url.strip_prefix("tcp://").unwrap()).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST /switchboard.bus.v1.Bus/{method} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         accept: {accept}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    io.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(io)
}

/// Returns the next line with this text.
async fn line_with(io: &mut BufReader<TcpStream>, text: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(io.read_line(&mut line).await.unwrap(), 0, "the response ended without {text:?}");
        if line.contains(text) {
            return line;
        }
    }
}

#[tokio::test]
async fn browsers_subscribe_with_event_streams() {
    let server = serve(&Bus::new()).await;
    let mut events = post(&server, "Subscribe", "text/event-stream", r#"{"topic":"quotes/*"}"#).await;
    line_with(&mut events, r#""started":"#).await;
    let body = r#"{"topic":"quotes/acme","entry":{"payload":"MTIuNQ==","codec":"json"}}"#;
    let mut response = post(&server, "Publish", "application/json", body).await;
    line_with(&mut response, " 200 ").await;
    let entry = line_with(&mut events, r#""entry""#).await;
    for part in
        [r#""topic":"quotes/acme""#, r#""offset":"1""#, r#""payload":"MTIuNQ==""#, r#""codec":"json""#]
    {
        assert!(entry.contains(part), "{part}: {entry}");
    }
}
