//! A plugin with a wire of lines, on the engines of `switchboard-fanout`.
//!
//! ```text
//! notes           the first line of a subscriber; the server responds "welcome"
//! > text          a note, to every subscriber of the server
//! bye             the server stops
//! ```

use bytes::Bytes;
use std::{
    io,
    sync::{Arc, Mutex},
};
use switchboard::{
    plugin::{Plugin, PluginContext, PluginServer},
    wire::{Input, WireSpec, starts},
};
use switchboard_fanout::{
    Adapter, Admitted, BufferId, CloseReason, Connected, Engines, Options, State, SubscriberId, Subscribers,
};

pub(crate) static NOTES: WireSpec = WireSpec {
    title: "notes in lines",
    sniff: Some(|prefix| starts(prefix, b"notes\n")),
    ..WireSpec::named("notes")
};

/// Sends notes to all subscribers of the servers that it was added to.
#[derive(Clone, Default)]
pub(crate) struct Notes {
    servers: Arc<Mutex<Vec<Engines<Board>>>>,
}

impl Notes {
    pub(crate) fn publish(&self, text: &str) {
        for server in self.servers.lock().unwrap().iter() {
            for (_, engine) in server.handles() {
                engine.try_send(Bytes::from(format!("> {text}\n"))).unwrap();
            }
        }
    }

    /// Number of engines of all servers.
    pub(crate) fn engines(&self) -> usize {
        self.servers.lock().unwrap().iter().map(|server| server.handles().len()).sum()
    }
}

impl Plugin for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&NOTES]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let engines = Engines::new(Options::default(), Some(context.memory), |_| Board { all: None });
        self.servers.lock().unwrap().push(engines.clone());
        Ok(Arc::new(engines))
    }
}

pub(crate) struct Board {
    all: Option<BufferId>,
}

impl Adapter for Board {
    type Command = Bytes;
    type Connection = Admitted;

    fn connected(&mut self, _: Connected<Admitted>, _: &mut Subscribers) {}

    fn received(
        &mut self,
        id: SubscriberId,
        input: &mut Input,
        subscribers: &mut Subscribers,
    ) -> Result<(), CloseReason> {
        while let Some(end) = input.rest().iter().position(|byte| *byte == b'\n') {
            let is_known = &input.rest()[..end] == b"notes";
            input.skip(end + 1);
            if !is_known {
                return Err(CloseReason::Violation { name: "line", text: "an unknown line".into() });
            }
            let all = *self.all.get_or_insert_with(|| subscribers.open_buffer());
            subscribers.attach(id, all);
            subscribers.send(id, |out| out.tail().extend_from_slice(b"welcome\n"));
        }
        Ok(())
    }

    fn command(&mut self, note: Bytes, subscribers: &mut Subscribers) {
        if let Some(all) = self.all {
            subscribers.append(all, b"", &note);
        }
    }

    fn due(&mut self, _: SubscriberId, _: &mut Subscribers) {}

    fn lagged(&mut self, id: SubscriberId, _: BufferId, _: u64, subscribers: &mut Subscribers) {
        subscribers.close(id, CloseReason::Lagged);
    }

    fn disconnected(&mut self, _: SubscriberId, _: &CloseReason, _: State, _: &mut Subscribers) {}

    fn draining(&mut self, subscribers: &mut Subscribers) {
        let (all, _) = subscribers.list(0, usize::MAX);
        for id in all {
            subscribers.send(id, |out| out.tail().extend_from_slice(b"bye\n"));
        }
    }
}
