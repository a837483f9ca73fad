//! Messages from one codec to another: protobuf by its schema, JSON and MessagePack into each other without one.

use super::known::{Known, Messages};
use crate::call::Function;
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use switchboard::{
    Call, Codec, Result, Status,
    proxy::{Translate, Translation},
};

/// Deepest nesting of MessagePack that is read, that of JSON here.
const DEPTH_MAX: usize = 128;

/// Rewrites messages of the methods that are known.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    messages: Arc<HashMap<String, Messages>>,
    functions: Arc<HashMap<String, Function>>,
}

impl Rewrite {
    pub(super) fn new(known: &Known) -> Rewrite {
        Rewrite { messages: known.messages.clone(), functions: known.functions.clone() }
    }
}

impl Translate for Rewrite {
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
        let (name, from) = (call.full_name(), call.codec());
        if let (Codec::Json | Codec::MsgPack, Codec::Thrift, Some(function)) =
            (from, to, self.functions.get(&name))
        {
            return Ok(to_thrift(function.clone(), from));
        }
        let types = self.messages.get(&name);
        let lacks = match (from, to) {
            (Codec::Json | Codec::MsgPack, Codec::Json | Codec::MsgPack) => None,
            (Codec::Json | Codec::MsgPack | Codec::Proto, Codec::Json | Codec::MsgPack | Codec::Proto) => {
                types.is_none().then_some("nothing is known of its messages: give the proxy a schema with --proto, --descriptor-set or --reflect")
            }
            (Codec::Json | Codec::MsgPack, Codec::Thrift) => Some(
                "nothing is known of its arguments: give the proxy the .thrift file of the service with --thrift",
            ),
            _ => Some("proto, json and msgpack are rewritten as each other, and json and msgpack as thrift, but no others"),
        };
        if let Some(why) = lacks {
            let text = format!("{name} was called in {from}, and the server behind takes {to}: {why}");
            return Err(Status::unimplemented(text));
        }
        let (request, reply) =
            (types.map(|types| types.request.clone()), types.map(|types| types.reply.clone()));
        Ok(Translation {
            request: Box::new(move |message| {
                rewrite(&message, from, to, request.as_ref()).map_err(|why| {
                    Status::invalid_argument(format!("the request is no {from} of its method: {why}"))
                })
            }),
            reply: Box::new(move |message| {
                rewrite(&message, to, from, reply.as_ref())
                    .map_err(|why| Status::internal(format!("the reply is no {to} of its method: {why}")))
            }),
        })
    }
}

/// Arguments of a method of a `.thrift` file, and its result back.
fn to_thrift(function: Function, from: Codec) -> Translation {
    let result = function.clone();
    Translation {
        request: Box::new(move |message| {
            let written = read_value(&message, from).and_then(|value| function.write(&value));
            written.map_err(|why| {
                Status::invalid_argument(format!("the request is no {from} of its method: {why}"))
            })
        }),
        reply: Box::new(move |message| {
            let value = result.read(&message)?;
            write_value(&value, from).map_err(Status::internal)
        }),
    }
}

/// The same message in another codec, of which the type has to be known where protobuf is one of them.
fn rewrite(
    message: &Bytes,
    from: Codec,
    to: Codec,
    descriptor: Option<&MessageDescriptor>,
) -> std::result::Result<Bytes, String> {
    let Some(descriptor) = descriptor.filter(|_| [from, to].contains(&Codec::Proto)) else {
        return write_value(&read_value(message, from)?, to);
    };
    let message = read(message, from, descriptor)?;
    match to {
        Codec::Proto => Ok(message.encode_to_vec().into()),
        Codec::Json => serde_json::to_vec(&message).map(Bytes::from).map_err(|error| error.to_string()),
        to => write_value(&serde_json::to_value(&message).map_err(|error| error.to_string())?, to),
    }
}

/// Reads a message of this type.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    message: &Bytes,
    codec: Codec,
    descriptor: &MessageDescriptor,
) -> std::result::Result<DynamicMessage, String> {
    let descriptor = descriptor.clone();
    match codec {
        Codec::Proto => {
            DynamicMessage::decode(descriptor, message.clone()).map_err(|error| error.to_string())
        }
        Codec::Json => {
            let mut json = serde_json::Deserializer::from_slice(message);
            let read = DynamicMessage::deserialize(descriptor, &mut json);
            read.and_then(|read| json.end().map(|()| read)).map_err(|error| error.to_string())
        }
        codec => DynamicMessage::deserialize(descriptor, read_value(message, codec)?)
            .map_err(|error| error.to_string()),
    }
}

/// Reads what says itself how it is made up.
///
/// # Errors
/// What is wrong with it, or that its codec does not say.
pub(super) fn read_value(message: &Bytes, codec: Codec) -> std::result::Result<Value, String> {
    match codec {
        Codec::Json => serde_json::from_slice(message).map_err(|error| error.to_string()),
        Codec::MsgPack => {
            let mut read = rmp_serde::Deserializer::new(&message[..]);
            read.set_max_depth(DEPTH_MAX);
            serde::Deserialize::deserialize(&mut read)
                .map_err(|error: rmp_serde::decode::Error| error.to_string())
        }
        codec => Err(format!("{codec} is read with a schema alone")),
    }
}

fn write_value(value: &Value, codec: Codec) -> std::result::Result<Bytes, String> {
    let written = match codec {
        Codec::MsgPack => rmp_serde::to_vec_named(value).map_err(|error| error.to_string()),
        _ => serde_json::to_vec(value).map_err(|error| error.to_string()),
    };
    written.map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;

    fn greeting() -> MessageDescriptor {
        let source =
            "syntax = \"proto3\"; package t; message G { string user_name = 1; int64 n = 2; bytes b = 3; }";
        let mut pool = DescriptorPool::global();
        let file = protox::file::File::from_source("t.proto", source).unwrap();
        pool.add_file_descriptor_proto(file.file_descriptor_proto().clone()).unwrap();
        pool.get_message_by_name("t.G").unwrap()
    }

    fn value(json: &Bytes) -> Value {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn a_message_is_the_same_in_every_codec() {
        let json = Bytes::from_static(br#"{"userName":"Ada","n":"7","b":"AQ=="}"#);
        let codecs = [Codec::Json, Codec::MsgPack, Codec::Proto];
        for from in codecs {
            let first = rewrite(&json, Codec::Json, from, Some(&greeting())).unwrap();
            for to in codecs {
                let second = rewrite(&first, from, to, Some(&greeting())).unwrap();
                let back = rewrite(&second, to, Codec::Json, Some(&greeting())).unwrap();
                assert_eq!(value(&back), value(&json), "{from} to {to}");
            }
        }
    }

    #[test]
    fn json_and_messagepack_need_no_schema() {
        let json = Bytes::from_static(br#"{"a":[1,null,"x"],"b":{"c":1.5}}"#);
        let packed = rewrite(&json, Codec::Json, Codec::MsgPack, None).unwrap();
        assert_eq!(packed[0], 0x82);
        let back = rewrite(&packed, Codec::MsgPack, Codec::Json, None).unwrap();
        assert_eq!(value(&back), value(&json));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_no_panic() {
        let deep = vec![0x91; 100_000];
        for (bytes, codec) in [
            (&deep[..], Codec::MsgPack),
            (b"\xc1", Codec::MsgPack),
            (b"{", Codec::Json),
            (b"{} {}", Codec::Json),
            (br#"{"nobody": 1}"#, Codec::Json),
            (b"\xff", Codec::Proto),
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            let to = if codec == Codec::Proto { Codec::Json } else { Codec::Proto };
            assert!(rewrite(&bytes, codec, to, Some(&greeting())).is_err(), "{codec}");
        }
    }
}
