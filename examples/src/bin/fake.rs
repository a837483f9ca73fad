//! A test without a server: code that takes any `CalcApi` gets a fake in place of the client.

use switchboard::{Result, Status};

/// Divides.
#[switchboard::service]
trait Calc {
    async fn divide(&self, a: i64, b: i64) -> Result<i64>;
}

/// The function under test: it takes the real client, or any other implementation of the trait.
async fn mean(calc: &impl CalcApi, values: &[i64]) -> Result<i64> {
    calc.divide(values.iter().sum(), values.len() as i64).await
}

/// Answers what a test wants to see handled.
struct Broken;

impl CalcApi for Broken {
    async fn divide(&self, _: i64, _: i64) -> Result<i64> {
        Err(Status::unavailable("the abacus is being repaired"))
    }
}

/// The real service; `CalcClient::local` calls it in this process, without a connection.
struct Abacus;

impl Calc for Abacus {
    async fn divide(&self, a: i64, b: i64) -> Result<i64> {
        a.checked_div(b).ok_or_else(|| Status::invalid_argument("cannot divide by zero"))
    }
}

#[switchboard::main]
async fn main() -> Result<()> {
    let failed = mean(&Broken, &[1, 2, 3]).await.expect_err("the fake always fails");
    println!("with a fake: {failed}");
    let client = CalcClient::local(Abacus);
    println!("with the service: {}", mean(&client, &[1, 2, 3]).await?);
    let empty = mean(&client, &[]).await.expect_err("there is no mean of nothing");
    println!("of nothing: {empty}");
    Ok(())
}
