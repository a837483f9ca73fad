//! Generates the service and its messages; owned payloads are `Bytes`, which are sliced out of what was received.

use buffa_codegen::BytesRepr;
use connectrpc_build::{CodeGenConfig, Config};
use prost::Message;
use std::{env, fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=../rustpeer/proto");
    let schema = protox::compile(["bench.proto"], ["../rustpeer/proto"])?;
    let set = Path::new(&env::var("OUT_DIR")?).join("bench.bin");
    fs::write(&set, schema.encode_to_vec())?;
    let mut messages = CodeGenConfig::default();
    messages.bytes_fields = vec![(".".to_owned(), BytesRepr::Bytes)];
    Config::new()
        .buffa_config(messages)
        .generate_json(false)
        .descriptor_set(set)
        .files(&["bench.proto"])
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
