//! Readable messages for TLS errors, with the setting that fixes them.

use super::x509::{self, Summary};
use rustls::{
    AlertDescription, CertificateError, Error,
    pki_types::{CertificateDer, UnixTime},
};
use std::cell::RefCell;

thread_local! {
    /// Reason of the last certificate rejection on this thread. rustls calls the verifier internally and
    /// returns only its own error, without the certificate; both the text and the alert must be correct.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Returns the message for an error of rustls, without the peer's address.
pub(super) fn text(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => {
            REFUSED.take().unwrap_or_else(|| format!("the peer's certificate is refused: {error}"))
        }
        Error::NoCertificatesPresented => "the peer showed no certificate, and one is required".to_owned(),
        Error::AlertReceived(alert) => alerted(*alert),
        Error::PeerIncompatible(why) => {
            format!("no TLS version or cipher in common ({why:?}); this side supports TLS 1.2 and 1.3")
        }
        Error::NoApplicationProtocol => {
            "the peer requires a protocol that this side does not support (ALPN)".to_owned()
        }
        error => format!("the peer violated the TLS protocol: {error}"),
    }
}

fn alerted(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the peer requires a client certificate: set cert=FILE and key=FILE".to_owned()
        }
        AlertDescription::UnknownCA => "the peer does not trust the issuer of our certificate".to_owned(),
        AlertDescription::AccessDenied
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            format!("the peer refused our certificate ({alert:?})")
        }
        AlertDescription::HandshakeFailure => {
            "the peer refused the handshake (HandshakeFailure): it takes plaintext only, or has no cipher in common with us"
                .to_owned()
        }
        AlertDescription::NoApplicationProtocol => {
            "the peer speaks none of the protocols that we offered (ALPN)".to_owned()
        }
        AlertDescription::ProtocolVersion => {
            "the peer speaks no TLS version in common with us; this side supports TLS 1.2 and 1.3".to_owned()
        }
        alert => format!("the peer ended TLS with the alert {alert:?}"),
    }
}

/// Side that verifies; it determines the advice in the message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Client,
    Server,
}

/// Records why a certificate is rejected, for [`text`] on this thread.
pub(super) fn note(side: Side, certificate: &CertificateDer<'_>, error: &Error, now: UnixTime) {
    let Error::InvalidCertificate(error) = error else { return };
    let summary = Summary::of(certificate);
    REFUSED.set(Some(refusal(side, summary.as_ref(), error, now)));
}

fn refusal(side: Side, summary: Option<&Summary>, error: &CertificateError, now: UnixTime) -> String {
    let now = x509::date(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let whose = match side {
        Side::Client => "the server's certificate",
        Side::Server => "the client's certificate",
    };
    let Some(Summary { subject, issuer, names, not_before, not_after }) = summary else {
        return format!("{whose} cannot be read: {error}");
    };
    let which = match (subject.as_str(), names.first()) {
        ("", Some(name)) => name.as_str(),
        ("", None) => "without a name",
        (subject, _) => subject,
    };
    let what = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("expired on {}; it is {now} now", x509::date(*not_after))
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("is not valid before {}; it is {now} by the clock here", x509::date(*not_before))
        }
        CertificateError::UnknownIssuer => {
            let issued = if subject == issuer {
                "is self-signed".to_owned()
            } else {
                format!("was issued by {issuer:?}")
            };
            let option = match side {
                Side::Client => "ca=FILE",
                Side::Server => "client_ca=FILE",
            };
            format!("{issued}, which is not trusted here: name the issuer's certificate with {option}")
        }
        CertificateError::NotValidForNameContext { expected, .. } => {
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            let expected = expected.to_str();
            format!("is for {names}, not for {expected:?}; server_name=NAME expects another name")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            let purpose = match side {
                Side::Client => "servers",
                Side::Server => "clients",
            };
            format!("is not meant for {purpose} (extended key usage)")
        }
        CertificateError::Revoked => "is revoked".to_owned(),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "is that of an authority, which may only sign others: sign one with it".to_owned()
        }
        error => format!("is refused: {error}"),
    };
    format!("{whose} {which:?} {what}")
}
