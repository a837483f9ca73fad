//! The command line of a side.

use crate::Result;

#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) side: String,
    pub(crate) mode: String,
    pub(crate) endpoint: String,
    pub(crate) bytes: usize,
    pub(crate) peers: u32,
    pub(crate) warm_up: f64,
    pub(crate) seconds: f64,
    pub(crate) stalled: bool,
}

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (Some(side), Some(mode)) = (words.next(), words.next()) else {
            return Err("usage: SIDE MODE [OPTIONS]".to_owned());
        };
        let mut arguments = Self {
            side,
            mode,
            endpoint: "tcp://127.0.0.1:0".to_owned(),
            bytes: 64,
            peers: 1,
            warm_up: 1.0,
            seconds: 1.0,
            stalled: false,
        };
        while let Some(name) = words.next() {
            if name == "--stalled" {
                arguments.stalled = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("no value for {name}"))?;
            let number = || value.parse::<f64>().map_err(|_| format!("no number for {name}: {value}"));
            match &*name {
                "--endpoint" => arguments.endpoint = value,
                "--bytes" => arguments.bytes = number()? as usize,
                "--peers" => arguments.peers = number()? as u32,
                "--warm-up" => arguments.warm_up = number()?,
                "--seconds" => arguments.seconds = number()?,
                _ => return Err(format!("unknown option: {name}")),
            }
        }
        Ok(arguments)
    }
}
