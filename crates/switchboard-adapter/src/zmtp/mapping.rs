//! The local socket of each type of peer.

use switchboard_wire::zmtp::{Settings, SocketType};

/// Local socket that peers of a type talk to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Local {
    /// The DEALER of the application with this index.
    Dealer(usize),
    /// The PAIR of the application with this index.
    Pair(usize),
    /// The topic and the group of the pipeline.
    Pipeline,
    /// The ROUTER of the application with this index.
    Router(usize),
    /// The services of the server.
    Services,
    /// The topics of the bus.
    Topics,
}

impl Local {
    /// Returns the type of the local socket for a peer of this type; `None` if there is none.
    fn socket(self, peer: SocketType) -> Option<SocketType> {
        match (self, peer) {
            (Local::Dealer(_), peer) => Some(SocketType::Dealer).filter(|dealer| dealer.talks_to(peer)),
            (Local::Pair(_), peer) => Some(SocketType::Pair).filter(|pair| pair.talks_to(peer)),
            (Local::Pipeline, SocketType::Pull) => Some(SocketType::Push),
            (Local::Pipeline, SocketType::Push) => Some(SocketType::Pull),
            (Local::Topics, SocketType::Pub | SocketType::Xpub) => Some(SocketType::Sub),
            (Local::Topics, SocketType::Sub | SocketType::Xsub) => Some(SocketType::Pub),
            (Local::Router(_) | Local::Services, peer) => {
                Some(SocketType::Router).filter(|router| router.talks_to(peer))
            }
            (Local::Pipeline | Local::Topics, _) => None,
        }
    }

    /// Returns its name in errors, with the setter that maps peers to it.
    fn name(self) -> String {
        match self {
            Local::Dealer(index) => format!("DEALER {index} of the application (Zmtp::dealer)"),
            Local::Pair(index) => format!("PAIR {index} of the application (Zmtp::pair)"),
            Local::Pipeline => "the pipeline (Zmtp::pipeline)".to_owned(),
            Local::Router(index) => format!("ROUTER {index} of the application (Zmtp::router)"),
            Local::Services => "the services of the server (Zmtp::services)".to_owned(),
            Local::Topics => "the topics of the bus (Zmtp::new)".to_owned(),
        }
    }
}

/// Maps each type of peer to one local socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapping {
    entries: Vec<(SocketType, Local)>,
    /// All local sockets, also those that no type is mapped to.
    locals: Vec<Local>,
    refused: Vec<SocketType>,
}

impl Mapping {
    /// Maps types of peers to a local socket.
    pub(super) fn add(&mut self, peers: impl IntoIterator<Item = SocketType>, local: Local) {
        if !self.locals.contains(&local) {
            self.locals.push(local);
        }
        for peer in peers {
            if !self.entries.contains(&(peer, local)) {
                self.entries.push((peer, local));
            }
        }
    }

    /// Maps a type of peers to this local socket alone, or refuses it.
    pub(super) fn replace(&mut self, peer: SocketType, local: Option<Local>) {
        self.entries.retain(|(mapped, _)| *mapped != peer);
        self.refused.retain(|refused| *refused != peer);
        self.entries.extend(local.map(|local| (peer, local)));
    }

    /// Returns all local sockets of the program, in the order in which it added them.
    pub(super) fn locals(&self) -> impl Iterator<Item = Local> {
        self.locals.iter().copied()
    }

    /// Refuses types of peers.
    pub(super) fn refuse(&mut self, peers: impl IntoIterator<Item = SocketType>) {
        self.refused.extend(peers);
    }

    /// Returns the local socket for a peer of this type.
    pub(super) fn local(&self, peer: SocketType) -> Option<Local> {
        self.accepted().find(|(mapped, _)| *mapped == peer).map(|(_, local)| local)
    }

    /// Returns the types of peers that are served.
    pub(super) fn peers(&self) -> Vec<SocketType> {
        self.accepted().map(|(peer, _)| peer).collect()
    }

    fn accepted(&self) -> impl Iterator<Item = (SocketType, Local)> {
        self.entries.iter().copied().filter(|(peer, _)| !self.refused.contains(peer))
    }

    /// Returns the settings of connections.
    ///
    /// # Errors
    /// Fails without a type of peers, if two local sockets serve one type, and if a local socket cannot serve a type.
    pub(super) fn settings(&self) -> Result<Settings, String> {
        let mut pairs = Vec::new();
        for (peer, local) in self.accepted() {
            let Some(socket) = local.socket(peer) else {
                let types = SocketType::ALL.into_iter().filter(|other| local.socket(*other).is_some());
                let names: Vec<_> = types.map(SocketType::name).collect();
                return Err(format!(
                    "{peer} peers cannot talk to {}; {} can",
                    local.name(),
                    names.join(", ")
                ));
            };
            if let Some(other) = self.local(peer).filter(|other| *other != local) {
                return Err(format!(
                    "{peer} peers are mapped to {} and to {}: name the types of peers of each, or leave one out",
                    other.name(),
                    local.name()
                ));
            }
            pairs.push((peer, socket));
        }
        if pairs.is_empty() {
            return Err("no type of peers is served".to_owned());
        }
        Settings::by_mapping(&pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SocketType::{Dealer, Pub, Req, Router, Sub};

    #[test]
    fn each_type_has_one_local_socket() {
        let mut mapping = Mapping::default();
        assert_eq!(mapping.settings().unwrap_err(), "no type of peers is served");
        mapping.add([Sub, Pub], Local::Topics);
        mapping.add([Req, Dealer], Local::Services);
        mapping.add([Router], Local::Router(0));
        mapping.add([SocketType::Rep], Local::Dealer(1));
        assert!(mapping.settings().is_ok());
        assert_eq!(
            (mapping.local(Req), mapping.local(Router)),
            (Some(Local::Services), Some(Local::Router(0)))
        );
        assert_eq!(mapping.local(SocketType::Pair), None);
        mapping.add([Req], Local::Router(0));
        let text = mapping.settings().unwrap_err();
        assert!(
            text.starts_with("REQ peers are mapped to the services of the server (Zmtp::services)"),
            "{text}"
        );
        assert!(text.contains("and to ROUTER 0 of the application (Zmtp::router)"), "{text}");
        // A type that is refused is not ambiguous.
        mapping.refuse([Req]);
        assert!(mapping.settings().is_ok() && mapping.local(Req).is_none());
        mapping.add([Sub], Local::Services);
        let text = mapping.settings().unwrap_err();
        assert!(text.starts_with("SUB peers cannot talk to the services"), "{text}");
        assert!(text.ends_with("DEALER, REQ, ROUTER can"), "{text}");
    }
}
