//! Methods that a program learns at run time: from reflection, a descriptor set, a configuration.

use super::ClientMethod;
use std::sync::{Mutex, PoisonError};
use switchboard_core::Result;
use switchboard_wire::{Idempotency, Kind, MethodInfo, ServiceInfo, Status};

/// Maximum number of interned methods of a process: they are never freed.
const INTERNED_MAX: usize = 4096;
/// Maximum length of a path; servers of the native wire reject longer names.
const PATH_BYTES_MAX: usize = 1024;

static INTERNED: Mutex<Vec<&'static ClientMethod>> = Mutex::new(Vec::new());

impl ClientMethod {
    /// Returns the method `path`, such as `package.Service/Method`, for calls without generated code; messages are then
    /// the encoded bytes.
    ///
    /// Equal arguments return the same method. A process holds 4096 of them at most and never frees them, so `path`
    /// should not come from callers of the process.
    ///
    /// # Errors
    /// `InvalidArgument` when `path` is not a valid name of a method, `ResourceExhausted` when there are too many.
    ///
    /// ```no_run
    /// # async fn f() -> switchboard::Result<()> {
    /// use switchboard::{Channel, ClientMethod, Codec, Idempotency, Kind};
    ///
    /// let channel = Channel::connect("tcp://127.0.0.1:8080?wire=grpc").await?;
    /// let greet = ClientMethod::intern("demo.v1.Greeter/Greet", Kind::Unary, Idempotency::Unknown)?;
    /// let request = bytes::Bytes::from_static(b"\x0a\x03Ada");
    /// let reply = channel.unary(greet, channel.codec(Codec::Proto), Ok(request), |_, bytes| Ok(bytes)).await?;
    /// println!("{} bytes", reply.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn intern(path: &str, kind: Kind, idempotency: Idempotency) -> Result<&'static ClientMethod> {
        let (service, name) = split(path)?;
        let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |method: &&&ClientMethod| {
            let info = &method.service.methods[0];
            method.path == path && info.kind == kind && info.idempotency == idempotency
        };
        if let Some(method) = interned.iter().find(same) {
            return Ok(method);
        }
        if interned.len() == INTERNED_MAX {
            let text = format!(
                "cannot intern {path}: the process has {INTERNED_MAX} interned methods, which is the limit"
            );
            return Err(Status::resource_exhausted(text));
        }
        let info = MethodInfo::new(leak(name), kind).idempotency(idempotency);
        let service =
            ServiceInfo { name: leak(service), methods: Box::leak(Box::new([info])), descriptor: &[] };
        let method = ClientMethod { service: Box::leak(Box::new(service)), index: 0, path: leak(path) };
        let method: &ClientMethod = Box::leak(Box::new(method));
        interned.push(method);
        Ok(method)
    }
}

fn split(path: &str) -> Result<(&str, &str)> {
    let named = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    path.split_once('/')
        .filter(|(service, method)| path.len() <= PATH_BYTES_MAX && named(service) && named(method))
        .ok_or_else(|| {
            Status::invalid_argument(format!("{path:?} is not a method: expected package.Service/Method"))
        })
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    #[test]
    fn the_same_method_is_made_once() {
        let method = |path, kind| ClientMethod::intern(path, kind, Idempotency::Unknown).unwrap();
        let first = method("a.v1.B/C", Kind::Unary);
        assert!(std::ptr::eq(first, method("a.v1.B/C", Kind::Unary)));
        assert!(!std::ptr::eq(first, method("a.v1.B/C", Kind::Bidi)));
        assert_eq!(
            (first.path, first.service.name, first.service.methods[0].name),
            ("a.v1.B/C", "a.v1.B", "C")
        );
    }

    #[test]
    fn invalid_names_of_methods_are_rejected() {
        let long = format!("a/{}", "b".repeat(PATH_BYTES_MAX));
        for path in ["", "a", "/a", "a/", "a/b/c", "a b/c", "a/b?c", "ä/b", &long] {
            let rejected = ClientMethod::intern(path, Kind::Unary, Idempotency::Unknown).unwrap_err();
            assert_eq!(rejected.code(), Code::InvalidArgument, "{path:?}");
        }
    }
}
