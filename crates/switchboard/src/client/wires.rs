//! Wires of other frameworks that a channel speaks: one file each, and a line in [`WIRES`].

mod baidu;
mod erpc;
mod rpcx;
mod thrift;

use crate::{Codec, Limits, Result, Status};
use std::{fmt, sync::Arc};
use switchboard_wire::wire::ClientWire;

/// A wire as a URL asked for it.
pub(super) trait Foreign: fmt::Debug + Send + Sync {
    /// Takes an option of the URL; false for one that it does not know.
    ///
    /// # Errors
    /// What was expected instead of `value`.
    fn set(&mut self, name: &str, value: &str) -> std::result::Result<bool, &'static str>;

    /// Whether the options fit together.
    ///
    /// # Errors
    /// What does not, and what to do.
    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }

    /// How messages are written where generated code would write them as `preferred`.
    fn codec(&self, preferred: Codec) -> Codec;

    /// The machine of a new connection.
    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire>;
}

/// Makes a wire with its usual options.
type Make = fn() -> Box<dyn Foreign>;

/// The one list, by the names that `wire=` takes.
const WIRES: &[(&str, Make)] = &[
    ("baidu_std", || Box::<baidu::BaiduStd>::default()),
    ("erpc", || Box::<erpc::Erpc>::default()),
    ("rpcx", rpcx::make),
    ("thrift", || Box::<thrift::Thrift>::default()),
];

/// The wire that the options of `url` ask for, if it is one of these; its own options are set, and the others are in
/// `rest`.
///
/// # Errors
/// `InvalidArgument` that says what was expected instead.
pub(super) fn of_options<'a>(
    url: &str,
    options: &[(&'a str, &'a str)],
    rest: &mut Vec<(&'a str, &'a str)>,
) -> Result<Option<Arc<dyn Foreign>>> {
    let asked = options.iter().rev().find(|(name, _)| *name == "wire");
    let known = asked.and_then(|(_, value)| WIRES.iter().find(|(name, _)| name == value));
    let Some((wire, make)) = known else {
        rest.extend_from_slice(options);
        return Ok(None);
    };
    let mut foreign = make();
    for (name, value) in options {
        if *name == "wire" {
            continue;
        }
        match foreign.set(name, value) {
            Ok(true) => {}
            Ok(false) => rest.push((name, value)),
            Err(expected) => {
                let text = format!("{name}={value} in {url:?}: expected {expected}");
                return Err(Status::invalid_argument(text));
            }
        }
    }
    foreign.check().map_err(|why| Status::invalid_argument(format!("wire={wire} in {url:?}: {why}")))?;
    Ok(Some(foreign.into()))
}

/// The names that `wire=` takes, each after a comma.
pub(super) fn names() -> String {
    WIRES.iter().map(|(name, _)| format!(", {name}")).collect()
}
