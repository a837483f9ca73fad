//! Calls the Python server over kiss-rpc, in each way of compression: `kiss-client 127.0.0.1:PORT`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: kiss-client 127.0.0.1:PORT");
        return ExitCode::from(2);
    };
    let outcome: switchboard::Result<()> = switchboard::run(async move {
        for more in ["", "&snappy=dynamic", "&snappy=forced&heartbeats=true"] {
            interop_kiss::ask(&format!("tcp://{address}?{}{more}", interop_kiss::options())).await?;
            println!("passed kiss-rpc{more}");
        }
        Ok(())
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}
