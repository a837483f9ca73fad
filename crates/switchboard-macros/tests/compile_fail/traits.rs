#[switchboard::service]
trait Generic<T> {
    async fn one(&self) -> switchboard::Result<()>;
}

#[switchboard::service]
trait Associated {
    type Item;
    const LIMIT: usize;
    async fn one(&self) -> switchboard::Result<()>;
}

#[switchboard::service]
unsafe trait Unsafe {
    async fn one(&self) -> switchboard::Result<()>;
}

#[switchboard::service]
struct NoTrait;

fn main() {}
