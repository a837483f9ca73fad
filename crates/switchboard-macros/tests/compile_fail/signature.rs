#[switchboard::service]
trait Calc {
    fn not_async(&self, a: i64) -> switchboard::Result<i64>;
    async fn no_self(a: i64) -> switchboard::Result<i64>;
    async fn exclusive(&mut self, a: i64) -> switchboard::Result<i64>;
    async fn by_value(self) -> switchboard::Result<i64>;
    async fn generic<T: Send>(&self, a: T) -> switchboard::Result<i64>;
    async fn lifetime<'a>(&'a self) -> switchboard::Result<i64>;
    async fn body(&self) -> switchboard::Result<i64> {
        Ok(1)
    }
    async fn connect(&self) -> switchboard::Result<()>;
}

fn main() {}
