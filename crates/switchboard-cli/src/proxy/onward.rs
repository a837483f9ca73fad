//! Routes calls to the upstream servers; a reload replaces the routes while running calls continue.
//!
//! ```text
//! call ─► Onward ─► the current UpstreamRoutes ─► the Forward of its service ─► channel
//! ```
//!
//! A call keeps its routes until it has its reply, and a stream its connection until it ends. When the last call of the
//! old routes has ended, their channels close; the [`ConnectionAborter`] aborts calls that take too long.

use super::{ProxyArgs, current::Current, rewrite::Rewrite, schema::ProxySchema, upstream::Upstream};
use std::{collections::HashMap, sync::Arc};
use switchboard::{
    Call, Codec, Reply, Result, Server, Service, ServiceInfo, Status, client::ConnectionAborter,
    proxy::Forward,
};

/// The upstream routes of calls.
pub(super) struct UpstreamRoutes {
    /// The services of the schema, in its order.
    known: Vec<ServiceRoute>,
    undeclared: FallbackRoutes,
    aborter: ConnectionAborter,
}

struct ServiceRoute {
    forward: Forward,
    /// Codecs of its messages, by the schema.
    codecs: Vec<Codec>,
}

/// Routes of services without a schema.
enum FallbackRoutes {
    /// One route for all.
    All(Forward),
    /// Each to servers of its own.
    ByName(HashMap<String, Forward>),
    Nowhere,
}

/// The services of a server: from the schema, or in its key.
#[derive(Clone, Copy)]
enum RouteKey {
    Declared(usize),
    Fallback,
}

/// A service whose calls use the routes that are current when they begin.
struct Onward {
    info: &'static ServiceInfo,
    key: RouteKey,
    routes: Arc<Current<UpstreamRoutes>>,
}

impl UpstreamRoutes {
    /// Creates the first routes, and the server with the services that use them.
    ///
    /// # Errors
    /// Required settings that are missing, and invalid URLs.
    pub(super) fn first(
        mut server: Server,
        args: &ProxyArgs,
        upstream: &Upstream,
        known: &ProxySchema,
    ) -> std::result::Result<(Server, Arc<Current<UpstreamRoutes>>), String> {
        let rewrite = Rewrite::new(known);
        for function in &args.function {
            server = server.alias(format!("kiss/{}", function.number), function.method.as_str());
        }
        let mut forwards = Vec::new();
        for service in &known.services {
            let channel = upstream.channel(service.info.name)?;
            let forward = Forward::service(service.info, channel).translate(rewrite.clone());
            let codecs = service.codecs.clone();
            forwards.push(ServiceRoute { forward: written(forward, &codecs, upstream), codecs });
        }
        let is_known = |name: &&String| known.services.iter().any(|service| service.info.name == **name);
        let names: Vec<_> = args.service.iter().filter(|name| !is_known(name)).cloned().collect();
        let undeclared = FallbackRoutes::new(args, upstream, &names, !known.services.is_empty(), &rewrite)?;
        let accepts_undeclared = !matches!(undeclared, FallbackRoutes::Nowhere);
        let routes = Arc::new(Current::new(UpstreamRoutes {
            known: forwards,
            undeclared,
            aborter: upstream.aborter(),
        }));
        for (at, service) in known.services.iter().enumerate() {
            server = server.add(Onward {
                info: service.info,
                key: RouteKey::Declared(at),
                routes: routes.clone(),
            });
        }
        if accepts_undeclared {
            static ANY: ServiceInfo = ServiceInfo { name: "*", methods: &[], descriptor: &[] };
            server = server
                .fallback(Onward { info: &ANY, key: RouteKey::Fallback, routes: routes.clone() }, names);
        }
        Ok((server, routes))
    }

    /// Returns the routes of the same services to another upstream.
    ///
    /// # Errors
    /// An invalid URL, and a registry without named services.
    pub(super) fn over(&self, upstream: &Upstream) -> std::result::Result<UpstreamRoutes, String> {
        let known = self.known.iter().map(|ServiceRoute { forward, codecs }| {
            let forward = forward.over(upstream.channel(forward.info().name)?);
            Ok(ServiceRoute { forward: written(forward, codecs, upstream), codecs: codecs.clone() })
        });
        let known = known.collect::<std::result::Result<_, String>>()?;
        let undeclared = match &self.undeclared {
            FallbackRoutes::All(_) if upstream.is_registry() => {
                return Err("a registry lists servers by service, and this proxy forwards those of any \
                            name: name them with --service and start it again"
                    .to_owned());
            }
            FallbackRoutes::All(forward) => FallbackRoutes::All(forward.over(upstream.channel("")?)),
            FallbackRoutes::ByName(forwards) => {
                let forwards = forwards
                    .iter()
                    .map(|(name, forward)| Ok((name.clone(), forward.over(upstream.channel(name)?))));
                FallbackRoutes::ByName(forwards.collect::<std::result::Result<_, String>>()?)
            }
            FallbackRoutes::Nowhere => FallbackRoutes::Nowhere,
        };
        Ok(UpstreamRoutes { known, undeclared, aborter: upstream.aborter() })
    }

    /// Aborts calls that still use these routes, after their time.
    pub(super) fn aborter(&self) -> ConnectionAborter {
        self.aborter.clone()
    }

    fn forward(&self, key: RouteKey, service: &str) -> Option<&Forward> {
        match (key, &self.undeclared) {
            (RouteKey::Declared(at), _) => self.known.get(at).map(|known| &known.forward),
            (RouteKey::Fallback, FallbackRoutes::All(forward)) => Some(forward),
            (RouteKey::Fallback, FallbackRoutes::ByName(forwards)) => forwards.get(service),
            (RouteKey::Fallback, FallbackRoutes::Nowhere) => None,
        }
    }
}

impl FallbackRoutes {
    fn new(
        args: &ProxyArgs,
        upstream: &Upstream,
        names: &[String],
        has_schema: bool,
        rewrite: &Rewrite,
    ) -> std::result::Result<FallbackRoutes, String> {
        let without = |why: &str| if has_schema { Ok(FallbackRoutes::Nowhere) } else { Err(why.to_owned()) };
        if args.known_only || (names.is_empty() && !args.service.is_empty()) {
            return without(
                "--known-only needs a schema: --proto, --thrift, --fbs, --descriptor-set or --reflect",
            );
        }
        if !upstream.is_registry() {
            return Ok(FallbackRoutes::All(Forward::any(upstream.channel("")?).translate(rewrite.clone())));
        }
        if names.is_empty() {
            return without(
                "a registry lists servers by service: name them with --service, or give the schema with \
                 --proto, --descriptor-set, --thrift or --fbs",
            );
        }
        let forwards = names
            .iter()
            .map(|name| Ok((name.clone(), Forward::any(upstream.channel(name)?).translate(rewrite.clone()))));
        Ok(FallbackRoutes::ByName(forwards.collect::<std::result::Result<_, String>>()?))
    }
}

/// Sets the codec that suits these servers best, if the schema has it.
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
        let routes = self.routes.get();
        match routes.forward(self.key, call.cx().service_name()) {
            Some(forward) => forward.call(call).await,
            None => Err(Status::unimplemented(format!("unknown service {}", call.cx().service_name()))),
        }
    }

    /// The upstream servers support Thrift as well. A call that then uses other routes is converted there.
    fn takes_thrift(&self) -> bool {
        self.routes.get().forward(self.key, "").is_some_and(Service::takes_thrift)
    }
}
