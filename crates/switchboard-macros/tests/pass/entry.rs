//! The entry point, with and without settings.

const WORKERS: usize = 1;

#[switchboard::main(workers = WORKERS, spin_us = 0)]
async fn set() -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    let number: u8 = "7".parse()?;
    Ok(number)
}

#[switchboard::main]
async fn main() {
    let number = std::thread::spawn(set).join().unwrap().unwrap();
    assert_eq!(number, 7);
}
