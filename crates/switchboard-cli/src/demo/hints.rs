//! The text of the demo before and after the table.

/// Lists the services and their addresses.
pub(super) fn services(url: &str) -> String {
    format!(
        "demo.v1.Greeter, demo.v1.Posts and bench.v1.Bench serve every caller on\n\
         {url}\n\n\
         Each method is called over each wire.\n\n"
    )
}

/// Lists commands to copy, for a server at `HOST:PORT`, and at `nats` for clients of NATS.
pub(super) fn commands(address: &str, nats: &str) -> String {
    let port = address.rsplit(':').next().unwrap_or_default();
    format!(
        r#"
Open a page that calls from your browser:

  http://{address}/

Try it from another terminal:

  curl http://{address}/v1/greetings/Ada
  curl 'http://{address}/v1/posts?tag=rpc&limit=2'
  curl -N 'http://{address}/v1/ticks?count=5&interval_ms=500'
  curl -N -H 'accept: text/event-stream' 'http://{address}/v1/ticks?count=5&interval_ms=500'
  curl http://{address}/openapi.json

  curl -H 'content-type: application/json' -d '{{"name":"Ada"}}' http://{address}/demo.v1.Greeter/Greet
  curl 'http://{address}/demo.v1.Greeter/Greet?connect=v1&encoding=json&message=%7B%22name%22%3A%22Ada%22%7D'
  curl -H 'content-type: application/json' -d '{{"tag":"rpc"}}' http://{address}/demo.v1.Posts/Query

  curl -d '{{"jsonrpc":"2.0","method":"Greeter.Greet","params":["Ada"],"id":1}}' -H 'content-type: application/json' http://{address}/rpc

  grpcurl -plaintext {address} list
  grpcurl -plaintext -d '{{"name":"Ada"}}' {address} demo.v1.Greeter/Greet
  grpcurl -plaintext -d '{{"count":5,"interval_ms":500}}' {address} demo.v1.Greeter/Watch
  grpcurl -plaintext -d '{{"text":"one"}} {{"text":"two"}}' {address} demo.v1.Greeter/Chat

Subscribe to a topic, and publish to it from elsewhere:

  switchboard bus sub {address} 'quotes/*'
  switchboard bus pub {address} quotes/acme 12.5
  redis-cli -p {port} publish quotes/acme 12.5
  nats --server nats://{nats} pub quotes.acme 12.5

Serve devices in rooms, on another port:

  switchboard push serve --open --listen 127.0.0.1:0

Ctrl-C lets calls end and stops.
"#
    )
}
