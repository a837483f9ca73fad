//! The calculator of Thrift's tutorial, moved to Switchboard: the same `.thrift` file, the same callers.
//!
//! `docs/wires/thrift.md` shows old and new side by side. The client here speaks Thrift, as it would to a server that
//! has not moved yet; without `?wire=thrift` it speaks the native wire to this one.

use examples::tutorial::{Calculator, CalculatorClient, CalculatorServer, InvalidOperation, Operation, Work};
use switchboard::{Code, Cx, Result, Server, codec::thrift::Exception};

struct Handler;

impl Calculator for Handler {
    async fn ping(&self, _cx: &Cx) -> Result<()> {
        Ok(())
    }

    async fn add(&self, num1: i32, num2: i32, _cx: &Cx) -> Result<i32> {
        Ok(num1.wrapping_add(num2))
    }

    async fn calculate(&self, _logid: i32, w: Work, _cx: &Cx) -> Result<i32> {
        let refused = |why: &str| InvalidOperation { what_op: w.op.0, why: why.to_owned() };
        let result = match w.op {
            Operation::ADD => w.num1.checked_add(w.num2),
            Operation::SUBTRACT => w.num1.checked_sub(w.num2),
            Operation::MULTIPLY => w.num1.checked_mul(w.num2),
            Operation::DIVIDE if w.num2 == 0 => return Err(refused("cannot divide by 0").into()),
            Operation::DIVIDE => w.num1.checked_div(w.num2),
            _ => return Err(refused("no such operation").into()),
        };
        result.ok_or_else(|| refused("the result has more than 32 bits").into())
    }

    async fn zip(&self, _cx: &Cx) -> Result<()> {
        Ok(())
    }
}

#[switchboard::main]
async fn main() -> Result<()> {
    let server = Server::new().add(CalculatorServer::new(Handler)).listen("tcp://127.0.0.1:0");
    let running = server.start().await?;

    for how in
        ["?wire=thrift", "?wire=thrift&protocol=compact&framed=false", "?wire=thrift&protocol=header", ""]
    {
        let client = CalculatorClient::connect(&format!("{}{how}", running.url())).await?;
        client.ping().await?;
        client.zip().await?;
        println!("1 + 1 = {}", client.add(1, 1).await?.into_inner());

        let work = Work { num1: 1, op: Operation::DIVIDE, ..Work::default() };
        let status = client.calculate(1, work).await.expect_err("a division by 0 fails");
        assert_eq!(status.code(), Code::InvalidArgument);
        let refused = InvalidOperation::of(&status).expect("the declared exception");
        println!("{:?}: {}", Operation(refused.what_op), refused.why);
    }
    Ok(())
}
