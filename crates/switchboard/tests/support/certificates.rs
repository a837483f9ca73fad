//! Certificates made for one test, in a folder of their own that goes with them.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// An authority that issues what a test wants.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

/// Where a certificate and its key were written.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("key");
        let own = params.self_signed(&key).expect("sign");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("swb-certificates-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("folder");
        let authority = Authority { issuer: Issuer::new(params, key), folder };
        fs::write(authority.ca(), own.pem()).expect("write");
        authority
    }

    /// The authority's own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A file of this name in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A certificate for a host name or IP address.
    pub fn issue(&self, name: &str) -> Files {
        self.issue_with(name, &[name], |_| {})
    }

    /// A certificate with this common name and these alternative names, changed by `change` before it is signed.
    pub fn issue_with(
        &self,
        name: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Files {
        let mut params = params(name, names);
        change(&mut params);
        let key = KeyPair::generate().expect("key");
        let certificate = params.signed_by(&key, &self.issuer).expect("sign");
        self.write(&certificate.pem(), &key.serialize_pem())
    }

    /// Creates a self-signed certificate.
    pub fn self_signed(&self, name: &str) -> Files {
        let key = KeyPair::generate().expect("key");
        let certificate = params(name, &[name]).self_signed(&key).expect("sign");
        self.write(&certificate.pem(), &key.serialize_pem())
    }

    fn write(&self, certificate: &str, key: &str) -> Files {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let files = Files {
            certificate: self.file(&format!("{number}.pem")),
            key: self.file(&format!("{number}.key.pem")),
        };
        fs::write(&files.certificate, certificate).expect("write");
        fs::write(&files.key, key).expect("write");
        files
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Files {
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> switchboard::Tls {
        switchboard::Tls::files(&self.certificate, &self.key)
    }

    /// Puts others in their place, the key last.
    pub fn replace(&self, others: &Files) {
        copy(&others.certificate, &self.certificate);
        copy(&others.key, &self.key);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("copy");
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}
