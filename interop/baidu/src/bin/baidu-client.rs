//! Calls the Java server: `baidu-client 127.0.0.1:PORT`.

use interop_baidu::cases;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: baidu-client 127.0.0.1:PORT");
        return ExitCode::from(2);
    };
    match switchboard::run(async move { cases::run(&address).await }) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}
