//! A service whose only method answers with the bytes that it gets, whatever their codec.

use switchboard::{Call, ClientMethod, Kind, MethodInfo, Reply, Result, Service, ServiceInfo};

static INFO: ServiceInfo =
    ServiceInfo { name: "test.Mirror", methods: &[MethodInfo::new("Show", Kind::Unary)], descriptor: &[] };
pub static SHOW: ClientMethod = ClientMethod { service: &INFO, index: 0, path: "test.Mirror/Show" };

pub struct Mirror;

impl Service for Mirror {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        let (message, cx) = call.into_one()?;
        Ok(Reply::one(message, cx))
    }
}
