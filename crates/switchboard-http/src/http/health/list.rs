//! `List` of the health service: the status of every service at once. `connectrpc` has only `Check` and `Watch`.

use buffa::{
    DecodeContext, DecodeError, EncodeSink, Message, SizeCache,
    bytes::Buf,
    encoding::{Tag, skip_field},
    types::{put_len_delimited_header, put_string_field, string_encoded_len},
};
use buffa_types::google::protobuf::Empty;
use connectrpc::{ConnectError, RequestContext, Response, Router, Spec, StreamType, handler_fn};
use connectrpc_health::{
    Checker, HEALTH_SERVICE_NAME, StaticChecker, request_limits,
    wire::{HealthCheckResponse, ServingStatus},
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};

const SPEC: Spec = Spec::server("/grpc.health.v1.Health/List", StreamType::Unary);

/// The services that the caller may see, in the extensions of a request.
#[derive(Clone)]
pub(in crate::http) struct Shown(pub(in crate::http) Arc<[&'static str]>);

/// Adds the method to those of `connectrpc`.
pub(super) fn install(router: Router, health: Arc<StaticChecker>) -> Router {
    // `HealthListRequest` has no fields.
    let list = move |context: RequestContext, _: Empty| {
        let health = health.clone();
        let shown = context.extensions().get::<Shown>().cloned();
        async move {
            let mut statuses = BTreeMap::new();
            let is_shown = |service: &str| {
                shown.as_ref().is_none_or(|shown| shown.0.iter().any(|known| **known == *service))
            };
            for service in health.services().into_iter().filter(|service| is_shown(service)) {
                let status = ServingStatus::from(health.check(&service).await?).into();
                statuses.insert(service, HealthCheckResponse { status, ..Default::default() });
            }
            Ok::<_, ConnectError>(Response::new(HealthListResponse { statuses }))
        }
    };
    router
        .route::<_, Empty, HealthListResponse>(HEALTH_SERVICE_NAME, "List", handler_fn(list))
        .with_spec(SPEC)
        .with_route_limits(SPEC.procedure, request_limits())
}

/// The message `HealthListResponse`: `map<string, HealthCheckResponse> statuses = 1`. It is only written, never read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct HealthListResponse {
    statuses: BTreeMap<String, HealthCheckResponse>,
}

buffa::impl_default_instance!(HealthListResponse);

/// Bytes of a map entry after its length prefix.
fn entry_len(name: &str, status: &HealthCheckResponse) -> u64 {
    let status = u64::from(status.encoded_len());
    1 + string_encoded_len(name) as u64 + 1 + buffa::encoding::varint_len(status) as u64 + status
}

impl Message for HealthListResponse {
    fn compute_size(&self, _: &mut SizeCache) -> u32 {
        let entries = self.statuses.iter().map(|(name, status)| entry_len(name, status));
        let size = entries.map(|len| 1 + buffa::encoding::varint_len(len) as u64 + len).sum();
        buffa::saturate_size(size)
    }

    fn write_to(&self, _: &mut SizeCache, out: &mut impl EncodeSink) {
        for (name, status) in &self.statuses {
            put_len_delimited_header(1, entry_len(name, status), out);
            put_string_field(1, name, out);
            put_len_delimited_header(2, u64::from(status.encoded_len()), out);
            status.encode(out);
        }
    }

    fn merge_field(
        &mut self,
        tag: Tag,
        from: &mut impl Buf,
        _: DecodeContext<'_>,
    ) -> Result<(), DecodeError> {
        skip_field(tag, from)
    }

    fn clear(&mut self) {
        self.statuses.clear();
    }
}
