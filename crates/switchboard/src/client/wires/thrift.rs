//! Servers of Apache Thrift.

use super::WireConfig;
use crate::{Codec, Limits};
use switchboard_wire::{
    thrift::{Client, Encoded, Framing, Settings},
    wire::ClientWire,
};

/// The options of `wire=thrift`.
#[derive(Debug, Default)]
pub(super) struct Thrift {
    settings: Settings,
    header: bool,
    framed: Option<bool>,
    /// True for Thrift over HTTP POST.
    #[cfg(feature = "http")]
    posted: bool,
}

impl WireConfig for Thrift {
    fn set(&mut self, name: &str, value: &str) -> Result<bool, &'static str> {
        match (name, value) {
            ("protocol", "binary") => self.settings.encoded = Encoded::Binary,
            ("protocol", "compact") => self.settings.encoded = Encoded::Compact,
            ("protocol", "header") => self.header = true,
            ("protocol", "header-compact") => {
                self.header = true;
                self.settings.encoded = Encoded::Compact;
            }
            ("protocol", _) => return Err("binary, compact, header or header-compact"),
            ("framed", _) => self.framed = Some(value.parse().map_err(|_| "true or false")?),
            ("multiplexed", _) => self.settings.multiplexed = value.parse().map_err(|_| "true or false")?,
            #[cfg(feature = "http")]
            ("http" | "path", _) => {
                self.posted = true;
                // These are options of HTTP.
                return Ok(false);
            }
            ("zlib", _) => self.settings.zlib = value.parse().map_err(|_| "true or false")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    #[cfg(feature = "http")]
    fn set_http(&mut self) -> bool {
        self.posted = true;
        true
    }

    #[cfg(feature = "http")]
    fn posted(&self) -> Option<Settings> {
        self.posted.then_some(self.settings)
    }

    fn check(&self) -> Result<(), String> {
        #[cfg(feature = "http")]
        if self.posted && (self.header || self.framed.is_some()) {
            return Err(
                "HTTP supports neither frames nor THeader: use protocol=binary or compact without framed"
                    .into(),
            );
        }
        if self.header && self.framed == Some(false) {
            return Err("THeader has its own frames: remove framed=false".into());
        }
        if self.settings.zlib && !self.header {
            return Err("zlib=true needs protocol=header or header-compact".into());
        }
        Ok(())
    }

    fn codec(&self, _preferred: Codec) -> Codec {
        Codec::Thrift
    }

    fn carries_metadata(&self) -> bool {
        self.header
    }

    fn machine(&self, limits: &Limits) -> Box<dyn ClientWire> {
        let framing = match (self.header, self.framed) {
            (true, _) => Framing::Header,
            (false, Some(false)) => Framing::Unframed,
            (false, _) => Framing::Framed,
        };
        Box::new(Client::new(limits.wire(), Settings { framing, ..self.settings }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompatible_options_are_rejected() {
        let of = |options: &[(&str, &str)]| {
            let mut thrift = Thrift::default();
            for (name, value) in options {
                assert_eq!(thrift.set(name, value), Ok(true));
            }
            thrift
        };
        assert!(of(&[]).check().is_ok());
        assert!(of(&[("protocol", "header"), ("zlib", "true")]).check().is_ok());
        assert!(of(&[("protocol", "header"), ("framed", "false")]).check().is_err());
        assert!(of(&[("protocol", "compact"), ("zlib", "true")]).check().is_err());
        #[cfg(feature = "http")]
        for (option, fits) in [(("protocol", "compact"), true), (("protocol", "header"), false)] {
            let mut thrift = of(&[option]);
            assert_eq!(thrift.set("path", "/calculator"), Ok(false), "an option of HTTP");
            assert_eq!(thrift.check().is_ok(), fits, "{option:?}");
        }
        assert_eq!(
            Thrift::default().set("protocol", "json"),
            Err("binary, compact, header or header-compact")
        );
        assert_eq!(Thrift::default().set("spin", "1"), Ok(false));
    }
}
