//! The client that the conformance suite of Connect starts: jobs come in, reports go out, each after its length.

use buffa::Message;
use conformance::pem::Folder;
use conformance_client::{
    caller,
    proto::{__buffa::oneof::report::Result as Outcome, Failure, Job, Report},
};
use std::{error::Error, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Mutex, Semaphore},
};

/// Calls at a time.
const CALLS_MAX: usize = 16;
/// The suite's largest messages have a few hundred kilobytes.
const JOB_MAX: u32 = 16 << 20;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    conformance::connect::register_types();
    switchboard::run(work())
}

async fn work() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut input, output) = (tokio::io::stdin(), Arc::new(Mutex::new(tokio::io::stdout())));
    let files = Arc::new(Folder::new()?);
    let turns = Arc::new(Semaphore::new(CALLS_MAX));
    let mut jobs = tokio::task::JoinSet::new();
    while let Ok(length) = input.read_u32().await {
        if length > JOB_MAX {
            return Err(format!("a job of {length} bytes: at most {JOB_MAX} are taken").into());
        }
        let mut job = vec![0; length as usize];
        input.read_exact(&mut job).await?;
        let job = Job::decode_from_slice(&job)?;
        let turn = turns.clone().acquire_owned().await?;
        let (files, output) = (files.clone(), output.clone());
        jobs.spawn(async move {
            let result = match caller::make(&job, &files).await {
                Ok(seen) => Outcome::from(seen),
                Err(status) => Outcome::from(Failure { message: status.to_string(), ..Default::default() }),
            };
            drop(turn);
            let report = Report { test_name: job.test_name, result: Some(result), ..Default::default() };
            let report = report.encode_to_vec();
            let mut output = output.lock().await;
            output.write_u32(report.len() as u32).await?;
            output.write_all(&report).await?;
            output.flush().await
        });
    }
    while let Some(job) = jobs.join_next().await {
        job??;
    }
    Ok(())
}
