//! Commands that receive entries until they are interrupted: `sub`, `pull` and `rep`.

use super::{
    args::{ReceiveArgs, ReplyArgs},
    limited,
    native::connect,
    output,
};
use crate::call::Failure;
use bytes::Bytes;
use std::{future::Future, time::Duration};
use switchboard_bus::Connect;
use switchboard_message::{Bus, Delivery, Subscription};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time limit of sending acknowledgements at the end.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prints entries, and acknowledges them after that.
pub(super) async fn subscribe(args: &ReceiveArgs, group: Option<&str>) -> Result<(), Failure> {
    if group.is_none() && (args.ack || args.durable) {
        let text = "--ack and --durable need the --group that shares the entries";
        return Err(Failure::Usage(text.to_owned()));
    }
    let topic = topic(args.topic.as_deref())?;
    let mut signals = Signals::install()?;
    let mut begun = None;
    let receiving = async {
        let bus = Bus::over(connect(&args.common).await?);
        let mut subscribe = bus.subscribe_encoded(topic);
        if let Some(group) = group {
            subscribe = if args.durable { subscribe.durable(group) } else { subscribe.group(group) };
        }
        if args.ack || args.durable {
            subscribe = subscribe.ack();
        }
        if let Some(from) = args.from {
            subscribe = from.apply(subscribe)?;
        }
        let subscription = subscribe.await?;
        let (_, subscription) = begun.insert((bus, subscription));
        eprintln!("subscribed to {topic}");
        receive(subscription, args).await
    };
    let outcome = limited(args.common.timeout, signals.or(receiving)).await;
    // An acknowledgement has no effect after its subscription.
    if let Some((bus, subscription)) = begun {
        let settled = tokio::time::timeout(SETTLE_TIMEOUT, bus.settled()).await;
        if !matches!(settled, Ok(Ok(()))) {
            eprintln!("switchboard: the last entries may not be acknowledged: the group receives them again");
        }
        drop(subscription);
    }
    outcome
}

async fn receive(subscription: &mut Subscription<Bytes>, args: &ReceiveArgs) -> Result<(), Failure> {
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match subscription.next().await? {
            None => break,
            Some(Delivery::Entry(message)) => {
                output::entry(&message, args.common.json, args.print)?;
                message.ack();
                left -= 1;
            }
            Some(Delivery::Gap(gap)) => output::gap(&gap, args.common.json)?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Prints requests, and replies to them.
pub(super) async fn reply(args: &ReplyArgs) -> Result<(), Failure> {
    let mut signals = Signals::install()?;
    limited(args.common.timeout, signals.or(reply_all(args))).await
}

async fn reply_all(args: &ReplyArgs) -> Result<(), Failure> {
    let topic = topic(args.topic.as_deref())?;
    let bus = Bus::over(connect(&args.common).await?);
    // Several repliers of a topic share its requests.
    let mut requests = bus.subscribe_encoded(topic).group("switchboard-bus-rep").await?;
    eprintln!("replying to {topic}");
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        match requests.next().await? {
            None => break,
            Some(Delivery::Entry(request)) => {
                output::entry(&request, args.common.json, args.print)?;
                if request.expects_reply() {
                    let text = args.text.as_ref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
                    let reply = text.unwrap_or_else(|| (*request).clone());
                    match request.reply_encoded(request.entry().codec(), reply).await {
                        // Its sender no longer waits; others do.
                        Err(status) if status.code() == switchboard::Code::NotFound => {
                            eprintln!("switchboard: {status}");
                        }
                        replied => replied?,
                    }
                }
                left -= 1;
            }
            Some(Delivery::Gap(gap)) => output::gap(&gap, args.common.json)?,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the name of the topic.
pub(super) fn topic(topic: Option<&str>) -> Result<&str, Failure> {
    topic.ok_or_else(|| Failure::Usage("the topic is missing; it follows the address".to_owned()))
}

/// Ctrl-C and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn install() -> Result<Signals, Failure> {
        let install =
            |kind| signal(kind).map_err(|error| Failure::Usage(format!("cannot watch for Ctrl-C: {error}")));
        let (interrupt, terminate) = (install(SignalKind::interrupt())?, install(SignalKind::terminate())?);
        Ok(Signals { interrupt, terminate })
    }

    /// Runs a future until a signal arrives, which is a success.
    pub(crate) async fn or(
        &mut self,
        running: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        tokio::select! {
            outcome = running => outcome,
            _ = self.interrupt.recv() => Ok(()),
            _ = self.terminate.recv() => Ok(()),
        }
    }
}
