//! Calls a server of Thrift's cross tests: `thrift-client URL [--multiplexed]`. Prints how many cases there were.

use std::error::Error;
use thrift_interop::cases::{self, Served};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("which server? thrift-client tcp://HOST:PORT?wire=thrift")?;
    let served = match arguments.next().as_deref() {
        None => Served::One,
        Some("--multiplexed") => Served::Multiplexed,
        Some(other) => return Err(format!("{other} is no option; --multiplexed is").into()),
    };
    switchboard::run(async move {
        let count = cases::run(&url, served).await?;
        println!("{count} cases passed");
        Ok(())
    })
}
