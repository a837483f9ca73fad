#[derive(serde::Deserialize, serde::Serialize)]
struct Filter {
    text: String,
}

#[switchboard::service]
trait Store {
    #[switchboard(http(get = "/a/{filter}"))]
    async fn in_path(&self, filter: Filter) -> switchboard::Result<()>;
    #[switchboard(http(get = "/b/{names}"))]
    async fn list(&self, names: Vec<String>) -> switchboard::Result<()>;
    #[switchboard(http(put = "/c", body = "name"))]
    async fn in_query(&self, name: String, filter: Option<Filter>) -> switchboard::Result<()>;
}

fn main() {}
