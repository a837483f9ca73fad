//! Makes the interop calls of gRPC: `interop-client URL [CASE]...`; all cases without a name.

use conformance::proto::grpc::TestServiceClient;
use conformance_client::cases;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((url, names)) = arguments.split_first() else {
        eprintln!("usage: interop-client URL [CASE]...");
        return ExitCode::from(2);
    };
    switchboard::run(run(url.clone(), names.to_vec()))
}

async fn run(url: String, names: Vec<String>) -> ExitCode {
    let client = match TestServiceClient::connect(&url).await {
        Ok(client) => client,
        Err(status) => {
            eprintln!("{status}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for (name, check) in cases::ALL {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        match check(&client).await {
            Ok(()) => println!("{name}: passed"),
            Err(status) => {
                failed += 1;
                println!("{name}: FAILED: {status}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
