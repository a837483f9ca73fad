//! Calls the servers of other implementations: `baidu-client 127.0.0.1:PORT` that of jprotobuf-rpc, with `brpc-java
//! WIRE` behind it that of brpc-java, with `streams` the one that speaks them.

use interop_baidu::{brpc_java, cases, streams};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let run = async move {
        match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [address] => cases::run(address).await,
            [address, "brpc-java", wire] => brpc_java::run(address, wire).await,
            [address, "streams"] => streams::run(address).await,
            _ => Err(switchboard::Status::invalid_argument(
                "usage: baidu-client 127.0.0.1:PORT [brpc-java WIRE|streams]",
            )),
        }
    };
    match switchboard::run(run) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}
