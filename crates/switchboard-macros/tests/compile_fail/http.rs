#[switchboard::service]
trait Store {
    #[switchboard(http(fetch = "/a"))]
    async fn verb(&self) -> switchboard::Result<()>;
    #[switchboard(http(body = "*"))]
    async fn nothing(&self) -> switchboard::Result<()>;
    #[switchboard(http(get = "/b", put = "/b"))]
    async fn two(&self) -> switchboard::Result<()>;
    #[switchboard(http(get = "c"))]
    async fn no_slash(&self) -> switchboard::Result<()>;
    #[switchboard(http(get = "/d/{c}"))]
    async fn unknown(&self, a: u32, b: u32) -> switchboard::Result<()>;
    #[switchboard(http(get = "/e/{a.b}"))]
    async fn inside(&self, a: u32) -> switchboard::Result<()>;
    #[switchboard(http(get = "/f/{a}", body = "*"))]
    async fn with_body(&self, a: u32, b: u32) -> switchboard::Result<()>;
    #[switchboard(http(put = "/g/{a}", body = "a"))]
    async fn twice(&self, a: u32) -> switchboard::Result<()>;
    #[switchboard(http(put = "/h", body = "b"))]
    async fn no_such_body(&self) -> switchboard::Result<()>;
    #[switchboard(http(post = "/i"))]
    async fn upload(&self, parts: switchboard::Receiver<String>) -> switchboard::Result<()>;
    #[switchboard(http(get = "/j/{a}"))]
    #[switchboard(http(delete = "/j/{a}"))]
    async fn first(&self, a: u32) -> switchboard::Result<()>;
    #[switchboard(http(get = "/j/{b}"))]
    async fn second(&self, b: u32) -> switchboard::Result<()>;
    #[switchboard(http(get = "/k"))]
    async fn letters(&self, größe: u32) -> switchboard::Result<()>;
}

fn main() {}
