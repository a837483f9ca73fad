//! `interop-erpc serve URL` serves what a client of eRPC calls; `interop-erpc call URL...` calls servers of it.

mod calls;
mod services;

use std::process::ExitCode;

/// Generated from `proto/`.
#[allow(missing_docs, unreachable_pub, reason = "a binary shows none of its items to anybody")]
mod proto {
    switchboard::include_proto!("interop.v1");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (command, urls) = (arguments.next(), arguments.collect::<Vec<_>>());
    let ended = switchboard::run(async move {
        match (command.as_deref(), &urls[..]) {
            (Some("serve"), [url]) => services::serve(url).await.map_err(|error| error.to_string()),
            (Some("call"), urls) => calls::all(urls).await,
            _ => Err("expected `serve URL` or `call URL...`".to_owned()),
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
