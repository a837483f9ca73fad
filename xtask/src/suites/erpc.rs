//! eRPC in both directions, in each of its framings.

use super::{CASE_LIMIT, built_of};
use crate::process::{self, Failure, Server};
use crate::steps::Run;
use std::path::Path;
use std::process::Command;

/// Every case in each framing. The framing of a server in Go is fixed, so there are three of them.
pub(super) fn check(run: &Run<'_>, peer: &Path) -> Result<(), Failure> {
    let own = built_of(run, "interop-erpc", "interop-erpc")?;

    let server = Server::start(Command::new(&own).args(["serve", "tcp://127.0.0.1:0"]))?;
    let address = format!("127.0.0.1:{}", server.port);
    process::run_within(CASE_LIMIT, Command::new(peer).args(["client", &address]))?;
    drop(server);

    let (mut servers, mut command) = (Vec::new(), Command::new(&own));
    command.arg("call");
    for framing in ["raw", "json", "proto"] {
        let server = Server::start(Command::new(peer).args(["server", framing]))?;
        command.arg(format!("tcp://127.0.0.1:{}?framing={framing}", server.port));
        servers.push(server);
    }
    process::run_within(CASE_LIMIT, &mut command)
}
