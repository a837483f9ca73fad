#[switchboard::service]
trait Calc {
    async fn nothing(&self);
    async fn bare(&self, a: i64) -> Vec<i64>;
    async fn without_type(&self) -> Result;
    async fn borrowed(&self) -> switchboard::Result<&str>;
}

fn main() {}
