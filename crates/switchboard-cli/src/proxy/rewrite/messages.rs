//! Messages of one direction: protobuf by its descriptor and as Thrift structs, JSON and MessagePack by their own
//! structure.

use super::{Family, functions};
use crate::{
    call::{For, Function, Outcome},
    proxy::schema,
};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;
use switchboard::{
    Codec, Result, Status,
    codec::{msgpack, serde, thrift::MethodMessages},
    proxy::Translation,
};

/// The types of the messages of a method, as far as they are known.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    types: Option<[MessageDescriptor; 2]>,
    structs: Option<MethodMessages>,
    /// Names the exceptions of a Thrift service.
    function: Option<Function>,
}

const NO_TYPES: &str = "its messages are unknown here";

/// The direction of messages.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) enum Side {
    Request,
    Reply,
}

impl Messages {
    /// Creates messages without types, which is enough for codecs that contain field names.
    pub(super) fn plain() -> Messages {
        Messages { types: None, structs: None, function: None }
    }

    /// Creates the messages of a protobuf method.
    ///
    /// # Errors
    /// A schema that Thrift cannot represent, if Thrift is needed.
    pub(super) fn of(
        protobuf: &schema::Messages,
        function: Option<&Function>,
        has_thrift: bool,
    ) -> Result<Messages> {
        Ok(Messages {
            types: Some([protobuf.request(), protobuf.reply()]),
            structs: has_thrift.then(|| protobuf.structs()).transpose()?,
            function: function.filter(|_| has_thrift).cloned(),
        })
    }

    /// Converts the messages of a call.
    pub(super) fn translation(self, from: Codec, to: Codec) -> Translation {
        let of_replies = self.clone();
        Translation::new(
            move |request| self.rewritten(Side::Request, &request, from, to),
            move |reply| of_replies.rewritten(Side::Reply, &reply, to, from),
        )
    }

    /// Converts a message to JSON for people.
    ///
    /// # Errors
    /// A malformed message.
    pub(super) fn shown(&self, side: Side, message: &Bytes, codec: Codec) -> Result<Value> {
        let json = match codec {
            Codec::Json => message.clone(),
            codec => self.rewritten(side, message, codec, Codec::Json)?,
        };
        read_value(&json, Codec::Json).map_err(|why| side.malformed(codec, &why))
    }

    /// Converts a message to another codec.
    ///
    /// # Errors
    /// A malformed message.
    pub(super) fn rewritten(&self, side: Side, message: &Bytes, from: Codec, to: Codec) -> Result<Bytes> {
        let (mut message, mut codec) = (message.clone(), from);
        if Family::of(from) == Family::Thrift {
            let read = self.as_structs(side, from, Codec::Proto, &message);
            (message, codec) =
                (read.map_err(|status| self.thrown(&message, from).unwrap_or(status))?, Codec::Proto);
        }
        let wanted = if Family::of(to) == Family::Thrift { Codec::Proto } else { to };
        if codec != wanted {
            let written = rewrite(&message, codec, wanted, self.descriptor(side));
            message = written.map_err(|why| side.malformed(from, &why))?;
        }
        match wanted == to {
            true => Ok(message),
            false => self.as_structs(side, wanted, to, &message),
        }
    }

    /// Converts a protobuf message to its fields by name, with enums and all numbers as numbers.
    ///
    /// # Errors
    /// A malformed message.
    pub(super) fn by_name(&self, side: Side, message: &Bytes) -> std::result::Result<Value, String> {
        const LOOK: SerializeOptions = SerializeOptions::new()
            .stringify_64_bit_integers(false)
            .use_proto_field_name(true)
            .use_enum_numbers(true)
            .skip_default_fields(false);
        let read = read(message, Codec::Proto, self.descriptor(side).ok_or(NO_TYPES)?)?;
        read.serialize_with_options(serde_json::value::Serializer, &LOOK).map_err(|error| error.to_string())
    }

    /// Converts JSON to a protobuf message.
    ///
    /// # Errors
    /// A value that does not fit.
    pub(super) fn of_names(&self, side: Side, json: &str) -> std::result::Result<Bytes, String> {
        let descriptor = self.descriptor(side).ok_or(NO_TYPES)?;
        let read = read(&Bytes::copy_from_slice(json.as_bytes()), Codec::Json, descriptor)?;
        Ok(read.encode_to_vec().into())
    }

    fn descriptor(&self, side: Side) -> Option<&MessageDescriptor> {
        self.types.as_ref().map(|types| &types[side as usize])
    }

    fn as_structs(&self, side: Side, from: Codec, to: Codec, message: &Bytes) -> Result<Bytes> {
        let Some(structs) = &self.structs else {
            return Err(Status::internal("no Thrift types are known here"));
        };
        match side {
            Side::Request => structs.request(from, to, message),
            Side::Reply => structs.reply(from, to, message),
        }
    }

    /// Returns the exception in a result, if a file names it.
    fn thrown(&self, result: &Bytes, codec: Codec) -> Option<Status> {
        match functions::outcome(self.function.as_ref()?, result, codec, For::Programs) {
            Ok(Outcome::Thrown(thrown)) => Some(thrown.status()),
            _ => None,
        }
    }
}

impl Side {
    /// Returns the status for a malformed message.
    pub(super) fn malformed(self, codec: Codec, why: &str) -> Status {
        match self {
            Side::Request => {
                Status::invalid_argument(format!("the request is not {codec} of its method: {why}"))
            }
            Side::Reply => Status::internal(format!("the reply is not {codec} of its method: {why}")),
        }
    }
}

/// Converts a message to another codec; the type must be known if one codec is protobuf.
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

/// Decodes a message of this type.
fn read(
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

/// Decodes a message that describes its own structure.
///
/// # Errors
/// A malformed message, or a codec without structure.
pub(super) fn read_value(message: &Bytes, codec: Codec) -> std::result::Result<Value, String> {
    match codec {
        Codec::Json => serde_json::from_slice(message).map_err(|error| error.to_string()),
        Codec::MsgPack => {
            let json = msgpack::to_json(message).map_err(|status| status.message().to_owned())?;
            serde_json::from_slice(&json).map_err(|error| error.to_string())
        }
        codec => Err(format!("{codec} can only be read with a schema")),
    }
}

/// Encodes a value in such a codec.
///
/// # Errors
/// A value that the codec cannot represent.
pub(super) fn write_value(value: &Value, codec: Codec) -> std::result::Result<Bytes, String> {
    serde::encode(value, codec).map_err(|status| status.message().to_owned())
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
        // Lists of small numbers stay lists.
        let list = Bytes::from_static(b"[1,2]");
        assert_eq!(rewrite(&list, Codec::Json, Codec::MsgPack, None).unwrap(), &b"\x92\x01\x02"[..]);
    }

    #[test]
    fn values_without_json_form_use_the_mapping_of_protobuf() {
        for (packed, json) in [
            (&b"\xc4\x01\x01"[..], r#""AQ==""#),
            (b"\xcb\x7f\xf8\0\0\0\0\0\0", r#""NaN""#),
            (b"\xca\xff\x80\0\0", r#""-Infinity""#),
        ] {
            let packed = Bytes::from_static(packed);
            assert_eq!(rewrite(&packed, Codec::MsgPack, Codec::Json, None).unwrap(), json);
        }
    }

    #[test]
    fn malformed_messages_are_errors_and_no_panic() {
        let deep = vec![0x91; 100_000];
        for (bytes, codec) in [
            (&deep[..], Codec::MsgPack),
            (b"\xc1", Codec::MsgPack),
            (b"\x80\x80", Codec::MsgPack),
            (b"{", Codec::Json),
            (b"{} {}", Codec::Json),
            (br#"{"unknown": 1}"#, Codec::Json),
            (b"\xff", Codec::Proto),
        ] {
            let bytes = Bytes::copy_from_slice(bytes);
            let to = if codec == Codec::Proto { Codec::Json } else { Codec::Proto };
            assert!(rewrite(&bytes, codec, to, Some(&greeting())).is_err(), "{codec}");
        }
    }
}
