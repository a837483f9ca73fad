struct Opaque;

#[switchboard::service]
trait Store {
    async fn put(&self, item: Opaque) -> switchboard::Result<()>;
}

#[switchboard::service]
trait Source {
    async fn take(&self) -> switchboard::Result<Opaque>;
}

fn main() {}
