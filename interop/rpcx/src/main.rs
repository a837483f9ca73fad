//! `interop-rpcx serve URL...` serves what a client of rpcx calls; `interop-rpcx call URL...` calls a server of it.

mod calls;
mod services;
mod side;

use std::process::ExitCode;

/// Generated from `proto/`.
#[allow(missing_docs, unreachable_pub, reason = "a binary shows none of its items to anybody")]
mod proto {
    switchboard::include_proto!("interop.v1");
}

/// Generated from `thrift/`.
#[allow(missing_docs, unreachable_pub, reason = "a binary shows none of its items to anybody")]
mod quotients {
    switchboard::include_proto!("interop.quotients");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (command, urls) = (arguments.next(), arguments.collect::<Vec<_>>());
    let ended = switchboard::run(async move {
        match command.as_deref() {
            Some("serve") => services::serve(&urls).await.map_err(|error| error.to_string()),
            Some("call") => calls::all(&urls).await,
            _ => Err("expected `serve URL...` or `call URL...`".to_owned()),
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
