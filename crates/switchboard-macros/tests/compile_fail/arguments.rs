use switchboard::Cx;

#[switchboard::service]
trait Calc {
    async fn text(&self, text: &str) -> switchboard::Result<()>;
    async fn bytes(&self, bytes: &[u8]) -> switchboard::Result<()>;
    async fn inside(&self, names: Vec<&str>) -> switchboard::Result<()>;
    async fn lifetime(&self, name: std::borrow::Cow<'_, str>) -> switchboard::Result<()>;
    async fn anything(&self, names: impl Iterator) -> switchboard::Result<()>;
    async fn itself(&self, other: Self) -> switchboard::Result<()>;
    async fn pattern(&self, (a, b): (i64, i64)) -> switchboard::Result<()>;
    async fn mutable(&self, mut a: i64) -> switchboard::Result<()>;
    async fn ignored(&self, _: i64) -> switchboard::Result<()>;
    async fn attribute(&self, #[serde(default)] a: i64) -> switchboard::Result<()>;
    async fn owned_context(&self, cx: Cx) -> switchboard::Result<()>;
    async fn exclusive_context(&self, cx: &mut Cx) -> switchboard::Result<()>;
    async fn two_contexts(&self, cx: &Cx, more: &Cx) -> switchboard::Result<()>;
}

fn main() {}
