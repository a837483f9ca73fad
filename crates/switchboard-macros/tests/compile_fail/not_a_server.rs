use switchboard::{Result, Server};

#[switchboard::service]
trait Calc {
    async fn add(&self, a: i64, b: i64) -> Result<i64>;
}

struct Abacus;

impl Calc for Abacus {
    async fn add(&self, a: i64, b: i64) -> Result<i64> {
        Ok(a + b)
    }
}

fn main() {
    let _ = Server::new().add(Abacus);
}
