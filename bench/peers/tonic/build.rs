//! Generates the service and its messages; payloads are `Bytes`, which are sliced out of what was received.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../rustpeer/proto");
    let schema = protox::compile(["bench.proto"], ["../rustpeer/proto"])?;
    Ok(tonic_prost_build::configure().bytes(".bench.v1.EchoMessage").compile_fds(schema)?)
}
