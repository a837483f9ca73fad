use futures_core::Stream;
use switchboard::{Receiver, Result, Sender};

#[switchboard::service]
trait Feed {
    async fn further(&self, input: Receiver<u32>, limit: u32) -> Result<u32>;
    async fn two(&self, input: Receiver<u32>, more: Receiver<u32>) -> Result<u32>;
    async fn untyped(&self, input: Receiver) -> Result<u32>;
    async fn borrowed(&self, out: Sender<&str>) -> Result<()>;
    async fn reply_too(&self, out: Sender<u32>) -> Result<u32>;
    async fn both(&self, out: Sender<u32>) -> Result<impl Stream<Item = Result<u32>>>;
    async fn infallible(&self) -> Result<impl Stream<Item = u32>>;
    async fn other_trait(&self) -> Result<impl Iterator<Item = Result<u32>>>;
    #[switchboard(oneway)]
    async fn oneway_reply(&self) -> Result<u32>;
    #[switchboard(oneway)]
    async fn oneway_stream(&self, input: Receiver<u32>) -> Result<()>;
}

fn main() {}
