use std::rc::Rc;

#[switchboard::service]
trait Calc {
    async fn add(&self, a: i64) -> switchboard::Result<i64>;
}

struct Abacus;

impl Calc for Abacus {
    async fn add(&self, a: i64) -> switchboard::Result<i64> {
        let beads = Rc::new(a);
        std::future::ready(()).await;
        Ok(*beads)
    }
}

fn main() {}
