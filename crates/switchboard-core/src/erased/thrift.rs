//! Calls from Thrift clients to protobuf services: messages are transcoded in both directions.

use super::ErasedService;
use crate::{
    Call, Reply, Result,
    call::{ReplyBody, RequestBody, compressed},
    codec::thrift::Messages,
    compression::Packing,
    layer::BoxFuture,
};
use std::sync::{Arc, OnceLock};
use switchboard_wire::{Codec, Kind, ServiceInfo};

/// Message descriptions of a service, built with the first such call.
#[derive(Clone, Default)]
pub(super) struct Schema(Arc<OnceLock<Result<Messages>>>);

impl Schema {
    fn of(&self, service: &ServiceInfo) -> Result<&Messages> {
        self.0.get_or_init(|| Messages::read(service.descriptor)).as_ref().map_err(Clone::clone)
    }
}

/// Returns whether the messages of a call are Thrift and those of its method protobuf. Services of other
/// kinds have no descriptors.
#[inline]
pub(super) fn is_of_messages(call: &Call) -> bool {
    matches!(call.codec(), Codec::Thrift | Codec::ThriftStruct)
        && call.cx().method().kind == Kind::Unary
        && !call.cx().service().descriptor.is_empty()
}

/// Serves such a call.
#[cold]
pub(super) fn respond<'a>(
    service: &'a dyn ErasedService,
    schema: &'a Schema,
    call: Call,
) -> BoxFuture<'a, Result<Reply>> {
    Box::pin(async move {
        let info = service.info();
        let messages = schema.of(info)?.method(info.name, call.cx().method().name)?;
        let (index, codec) = (call.method(), call.codec());
        let (request, mut cx) = call.into_one()?;
        let packing = cx.packing();
        cx.set_packing(Packing::OFF, false);
        let request = RequestBody::One(messages.request(codec, Codec::Proto, &request)?);
        let reply = service.call(Call::new(index, Codec::Proto, request, cx)).await?;
        reply.try_map(|body| match body {
            ReplyBody::One(message) => {
                Ok(compressed(packing, messages.reply(Codec::Proto, codec, &message.into_whole())?))
            }
            other => Ok(other),
        })
    })
}
