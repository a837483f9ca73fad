#[switchboard::service]
trait Store {
    async fn item(&self) -> switchboard::Result<()>;
    async fn item(&self, key: String) -> switchboard::Result<()>;
    async fn one_item(&self) -> switchboard::Result<()>;
    async fn oneItem(&self) -> switchboard::Result<()>;
}

#[switchboard::service(name = "store/v1")]
trait Slash {
    async fn item(&self) -> switchboard::Result<()>;
}

#[switchboard::service(title = "Store")]
trait Title {
    async fn item(&self) -> switchboard::Result<()>;
}

fn main() {}
