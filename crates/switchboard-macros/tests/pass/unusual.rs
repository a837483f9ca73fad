//! Visibility, conditions, deprecation, raw names, names that generated code uses too: all without a warning.
#![deny(warnings, missing_docs)]

use switchboard::{Cx, Result, Status};

/// A domain error.
#[derive(Debug)]
pub struct Missing(String);

impl From<Missing> for Status {
    fn from(missing: Missing) -> Status {
        Status::not_found(missing.0)
    }
}

/// Has the generated name of the arguments of `ask`.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct OddAskRequest {
    text: String,
}

/// Odd.
#[switchboard::service(name = "odd.v1.Odd")]
pub trait Odd: std::fmt::Debug {
    /// Its argument's type has the generated name.
    async fn ask(&self, request: OddAskRequest) -> Result<String>;
    /// Names of locals in generated code.
    async fn collide(&self, codec: u8, cx: u8, call: u8, bytes: u8, context: &Cx, reply: u8, service: u8) -> Result<u8>;
    /// Absent, so the indices of the rest change.
    #[cfg(false)]
    async fn gone(&self, a: Unknown) -> Result<()>;
    /// Old.
    #[deprecated = "use `ask`"]
    async fn old(&self) -> Result<(), Missing>;
    /// Raw.
    async fn r#move(&self, r#type: String) -> Result<(String, u8)>;
    /// Many.
    #[allow(clippy::too_many_arguments)]
    async fn many(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> Result<u8>;
}

/// A service without callers and servers.
#[switchboard::service]
trait Unused {
    async fn nothing(&self) -> Result<()>;
}

#[cfg(false)]
#[switchboard::service]
trait Never {}

#[switchboard::service]
#[cfg(false)]
trait Never {
    async fn nothing(&self) -> Result<Unknown>;
}

#[derive(Debug)]
struct Quiet;

impl Unused for Quiet {
    async fn nothing(&self) -> Result<()> {
        Ok(())
    }
}

mod inner {
    #[switchboard::service]
    pub(super) trait Limited {
        async fn one(&self) -> switchboard::Result<u8>;
    }
}

/// Requires a future that can be sent to another thread, as a spawned task would be.
fn send<T: Send>(_: T) {}

fn main() {
    let _ = Quiet;
    assert_eq!(ODD.name, "odd.v1.Odd");
    let names: Vec<_> = ODD.methods.iter().map(|method| method.name).collect();
    assert_eq!(names, ["Ask", "Collide", "Old", "Move", "Many"]);
    assert!(ODD.methods.iter().all(|method| method.schema.is_some()));
    let calls = |client: inner::LimitedClient| send(async move { client.one().await });
    let _ = calls;
}
