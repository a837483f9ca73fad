#[switchboard::service]
trait Store {
    #[switchboard(one_way)]
    async fn unknown(&self) -> switchboard::Result<()>;
    #[switchboard(read_only, idempotent)]
    async fn both(&self) -> switchboard::Result<()>;
    #[switchboard(name = "Not A Name")]
    async fn odd(&self) -> switchboard::Result<()>;
}

fn main() {}
