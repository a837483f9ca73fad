//! Calls the Java server, `baidu-client 127.0.0.1:PORT`, or the one with streams: `baidu-client 127.0.0.1:PORT
//! streams`.

use interop_baidu::{cases, streams};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), what) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: baidu-client 127.0.0.1:PORT [streams]");
        return ExitCode::from(2);
    };
    let run = async move {
        match what {
            Some(_) => streams::run(&address).await,
            None => cases::run(&address).await,
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
