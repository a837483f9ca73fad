//! The way of calls to the servers behind, which a reload replaces under calls that go on.
//!
//! ```text
//! call ─► Onward ─► the Way that holds now ─► the Forward of its service ─► channel
//! ```
//!
//! A call that has begun keeps its way until it is answered, and a stream its connection until it ends. When the last
//! of a way are gone its channels close; the [`Cut`] is for those that take too long.

use super::{ProxyArgs, current::Current, known::Known, rewrite::Rewrite, upstream::Upstream};
use std::{collections::HashMap, sync::Arc};
use switchboard::{
    Call, Codec, Reply, Result, Server, Service, ServiceInfo, Status, client::Cut, proxy::Forward,
};

/// Where calls go.
pub(super) struct Way {
    /// The services of the schema, in its order.
    known: Vec<KnownForward>,
    others: Others,
    cut: Cut,
}

struct KnownForward {
    forward: Forward,
    /// What its messages are in, by the schema.
    codecs: Vec<Codec>,
}

/// Where calls go of services of which nothing is known.
enum Others {
    /// All the same way.
    All(Forward),
    /// These, each to servers of its own.
    ByName(HashMap<String, Forward>),
    Nowhere,
}

/// The services that a server is asked for, by the schema or in its place.
#[derive(Clone, Copy)]
enum Place {
    Known(usize),
    Others,
}

/// A service whose calls go the way that holds when they come.
struct Onward {
    info: &'static ServiceInfo,
    place: Place,
    way: Arc<Current<Way>>,
}

impl Way {
    /// The first one, and the server with the services that go it.
    ///
    /// # Errors
    /// What the command line leaves open, and URLs that cannot be used.
    pub(super) fn first(
        mut server: Server,
        args: &ProxyArgs,
        upstream: &Upstream,
        known: &Known,
    ) -> std::result::Result<(Server, Arc<Current<Way>>), String> {
        let rewrite = Rewrite::new(known);
        for function in &args.function {
            server = server.alias(format!("kiss/{}", function.number), function.method.as_str());
        }
        let mut forwards = Vec::new();
        for service in &known.services {
            let channel = upstream.channel(service.info.name)?;
            let forward = Forward::service(service.info, channel).translate(rewrite.clone());
            let codecs = service.codecs.clone();
            forwards.push(KnownForward { forward: written(forward, &codecs, upstream), codecs });
        }
        let is_known = |name: &&String| known.services.iter().any(|service| service.info.name == **name);
        let names: Vec<_> = args.service.iter().filter(|name| !is_known(name)).cloned().collect();
        let others = Others::new(args, upstream, &names, !known.services.is_empty(), &rewrite)?;
        let takes_others = !matches!(others, Others::Nowhere);
        let way = Arc::new(Current::new(Way { known: forwards, others, cut: upstream.cut() }));
        for (at, service) in known.services.iter().enumerate() {
            server = server.add(Onward { info: service.info, place: Place::Known(at), way: way.clone() });
        }
        if takes_others {
            static ANY: ServiceInfo = ServiceInfo { name: "*", methods: &[], descriptor: &[] };
            server = server.fallback(Onward { info: &ANY, place: Place::Others, way: way.clone() }, names);
        }
        Ok((server, way))
    }

    /// The same services by another upstream.
    ///
    /// # Errors
    /// A URL that cannot be used, and a registry for services that nobody named.
    pub(super) fn over(&self, upstream: &Upstream) -> std::result::Result<Way, String> {
        let known = self.known.iter().map(|KnownForward { forward, codecs }| {
            let forward = forward.over(upstream.channel(forward.info().name)?);
            Ok(KnownForward { forward: written(forward, codecs, upstream), codecs: codecs.clone() })
        });
        let known = known.collect::<std::result::Result<_, String>>()?;
        let others = match &self.others {
            Others::All(_) if upstream.is_registry() => {
                return Err(
                    "a registry knows servers by their services, and this proxy hands on those of any \
                            name: name them with --service and start it again"
                        .to_owned(),
                );
            }
            Others::All(forward) => Others::All(forward.over(upstream.channel("")?)),
            Others::ByName(forwards) => {
                let forwards = forwards
                    .iter()
                    .map(|(name, forward)| Ok((name.clone(), forward.over(upstream.channel(name)?))));
                Others::ByName(forwards.collect::<std::result::Result<_, String>>()?)
            }
            Others::Nowhere => Others::Nowhere,
        };
        Ok(Way { known, others, cut: upstream.cut() })
    }

    /// Ends what still goes this way, once it has had its time.
    pub(super) fn cut(&self) -> Cut {
        self.cut.clone()
    }

    fn forward(&self, place: Place, service: &str) -> Option<&Forward> {
        match (place, &self.others) {
            (Place::Known(at), _) => self.known.get(at).map(|known| &known.forward),
            (Place::Others, Others::All(forward)) => Some(forward),
            (Place::Others, Others::ByName(forwards)) => forwards.get(service),
            (Place::Others, Others::Nowhere) => None,
        }
    }
}

impl Others {
    fn new(
        args: &ProxyArgs,
        upstream: &Upstream,
        names: &[String],
        has_schema: bool,
        rewrite: &Rewrite,
    ) -> std::result::Result<Others, String> {
        let without = |why: &str| if has_schema { Ok(Others::Nowhere) } else { Err(why.to_owned()) };
        if args.known_only || (names.is_empty() && !args.service.is_empty()) {
            return without(
                "--known-only needs a schema: --proto, --thrift, --fbs, --descriptor-set or --reflect",
            );
        }
        if !upstream.is_registry() {
            return Ok(Others::All(Forward::any(upstream.channel("")?).translate(rewrite.clone())));
        }
        if names.is_empty() {
            return without(
                "a registry knows servers by their services: name them with --service, or give the schema with \
                 --proto, --descriptor-set, --thrift or --fbs",
            );
        }
        let forwards = names
            .iter()
            .map(|name| Ok((name.clone(), Forward::any(upstream.channel(name)?).translate(rewrite.clone()))));
        Ok(Others::ByName(forwards.collect::<std::result::Result<_, String>>()?))
    }
}

/// In what these servers are best sent, where the schema has it.
fn written(forward: Forward, codecs: &[Codec], upstream: &Upstream) -> Forward {
    match upstream.best_of(codecs) {
        Some(codec) => forward.codec(codec),
        None => forward,
    }
}

impl Service for Onward {
    fn info(&self) -> &'static ServiceInfo {
        self.info
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let way = self.way.get();
        let name = call.cx().service().name;
        match way.forward(self.place, name) {
            Some(forward) => forward.call(call).await,
            None => Err(Status::unimplemented(format!("unknown service {name}"))),
        }
    }

    /// So do the servers behind. A call that then goes another way is rewritten there.
    fn takes_thrift(&self) -> bool {
        self.way.get().forward(self.place, "").is_some_and(Service::takes_thrift)
    }
}
