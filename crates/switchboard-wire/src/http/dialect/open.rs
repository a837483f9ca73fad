//! Start of a gRPC call: its method, its checks, and the status of a call that is refused.

use super::grpc::{ContentType, Form, accept_encoding, reply_encoding};
use crate::{
    Codec, Encoding, Encodings, Found, Kind, MethodTable, Status, http::head::RequestHead, metadata::Name,
    wire::Head,
};

/// Result of reading the head of a request.
#[derive(Debug)]
// closed: a call, a call with a fault, or no call
pub enum Opening {
    /// A call, whose messages follow.
    Call(Head, Form),
    /// A call that ends with this status.
    Refused(Status, Form),
    /// A request that is no call of gRPC: its status in HTTP, and the reason.
    NoCall(u16, &'static str),
}

/// Reads the head of a request.
pub fn open(head: RequestHead, table: &MethodTable, encodings: Encodings) -> Opening {
    let form = match head.content_type {
        ContentType::Grpc(form) if head.is_post => form,
        ContentType::Grpc(_) => return Opening::NoCall(405, "calls of gRPC are POST requests"),
        ContentType::OtherCodec => Form::Plain,
        ContentType::Other => return Opening::NoCall(415, "this connection serves gRPC only"),
    };
    match call(head, form, table, encodings) {
        Ok(head) => Opening::Call(head, form),
        Err(status) => Opening::Refused(status, form),
    }
}

fn call(head: RequestHead, form: Form, table: &MethodTable, encodings: Encodings) -> Result<Head, Status> {
    // Metadata is checked first: it has the credentials, without which the caller learns nothing of the method.
    if head.has_too_many_entries() {
        let text = "more metadata entries than the limit (metadata_entries_max)";
        return Err(Status::resource_exhausted(text));
    }
    if let Some(name) = head.not_base64.as_ref().map(Name::as_str) {
        return Err(Status::invalid_argument(format!("metadata {name} is not base64")));
    }
    let found = match head.method {
        Some(method) => Found::from(method),
        None => undeclared(&head.path, table)?,
    };
    let (found, codec, encoding) = match check(&head, encodings) {
        Ok(()) => (found, form.codec(), head.encoding),
        Err(status) => (table.refuse_call(&found, Kind::Bidi, status)?, Codec::Raw, Encoding::Identity),
    };
    Ok(Head {
        method: found.method,
        undeclared_name: found.undeclared_name,
        codec,
        encoding,
        replies: reply_encoding(head.accepted, encodings),
        timeout: head.timeout,
        metadata: head.metadata,
        oneway: false,
    })
}

/// Finds a method that no service declares, or refuses it.
#[cold]
fn undeclared(path: &[u8], table: &MethodTable) -> Result<Found, Status> {
    let path = String::from_utf8_lossy(path);
    let name = path.strip_prefix('/').unwrap_or(&path);
    let found = table.undeclared(name, Kind::Bidi);
    found.map_or_else(|| table.refuse(name, Kind::Bidi, table.unknown(name)), Ok)
}

/// Checks timeout, codec and encoding of a call.
fn check(head: &RequestHead, encodings: Encodings) -> Result<(), Status> {
    if let Some(text) = &head.bad_timeout {
        return Err(Status::internal(format!(
            "malformed grpc-timeout {:?}: 1 to 8 digits and one of H M S m u n",
            String::from_utf8_lossy(text)
        )));
    }
    if head.content_type == ContentType::OtherCodec {
        let text = "the codec of the content type is not supported: use proto, json or flatbuffers";
        return Err(Status::unimplemented(text));
    }
    let name = match &head.unknown_encoding {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None if encodings.has(head.encoding) => return Ok(()),
        None => head.encoding.to_string(),
    };
    let names = accept_encoding(encodings);
    Err(Status::unimplemented(format!("compression {name:?} is not supported: use one of {names}")))
}
