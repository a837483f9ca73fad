#[switchboard::main]
async fn main(arguments: Vec<String>) {}
