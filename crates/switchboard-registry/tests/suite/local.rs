//! Registries whose program is installed here, as rigs: a separate server for each test.

use super::{
    Folder, Members, Rig,
    process::{Server, free_port},
};
use std::{marker::PhantomData, path::Path, sync::Arc, time::Duration};
use switchboard::discover::{Options, Registry};
use switchboard_registry::layout::Style;
use tokio::{process::Command, time::timeout};

/// The part of a rig that depends on the program.
pub(crate) trait Program {
    /// The shortest TTL that the program supports.
    const TTL: Duration;

    /// Returns the command of a server on the first of these ports with its data in this folder; `None` if it is not
    /// installed.
    fn command(folder: &Path, ports: [u16; 2]) -> Option<Command>;

    /// Waits until the server is ready, which may be a while after it accepts connections.
    async fn ready(_port: u16) {}

    /// Creates a registry at this port.
    fn connect(style: Style, port: u16, options: Options) -> Arc<dyn Registry>;
}

/// The server of one test.
pub(crate) struct Local<P> {
    style: Style,
    folder: Folder,
    ports: [u16; 2],
    server: Option<Server>,
    members: Members,
    program: PhantomData<P>,
}

impl<P: Program> Local<P> {
    /// Starts a server; `None` if the program is not installed.
    pub(crate) async fn of(style: Style) -> Option<Local<P>> {
        loop {
            let (folder, ports) = (Folder::new(), [free_port(), free_port()]);
            let mut command = P::command(&folder.0, ports)?;
            // The server ends at once if another process has taken a port meanwhile.
            if let Some(server) = Server::start(&mut command, ports[0]).await {
                timeout(Duration::from_secs(60), P::ready(ports[0])).await.expect("it is ready");
                let (server, members) = (Some(server), Members::new());
                return Some(Local { style, folder, ports, server, members, program: PhantomData });
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }
}

impl<P: Program> Rig for Local<P> {
    fn connect(&self, options: Options) -> Arc<dyn Registry> {
        P::connect(self.style, self.port(), options)
    }

    async fn stop(&mut self) {
        self.server.take().expect("it runs").kill().await;
    }

    async fn start(&mut self) {
        let command = || P::command(&self.folder.0, self.ports).expect("it was found before");
        self.server = Some(Server::start_again(command, self.port()).await);
    }

    fn ttl(&self) -> Duration {
        P::TTL
    }

    fn members(&mut self) -> &mut Members {
        &mut self.members
    }
}
