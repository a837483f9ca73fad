struct Mine;

#[switchboard::service]
trait Store {
    async fn put(&self, item: String) -> Result<(), Mine>;
}

fn main() {}
