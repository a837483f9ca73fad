//! PEM files with certificates, keys and roots, and detection of changes.

use super::x509::Summary;
#[cfg(feature = "auth")]
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum file size in bytes: a bundle of all public root certificates has 250 KiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Paths of a certificate chain and its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PairFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// A certificate chain with its key, loaded.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) summary: Summary,
}

impl PairFiles {
    /// Loads both files and checks that the key matches the certificate.
    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<Pair, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|_| {
            format!("{} has no private key in PEM, or one with a password", self.key.display())
        })?;
        let summary = chain.first().and_then(|certificate| Summary::of(certificate));
        let summary = summary
            .ok_or_else(|| format!("{}: its first certificate is broken", self.certificate.display()))?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "the key in {} does not belong to the certificate in {}",
                self.key.display(),
                self.certificate.display()
            ),
            error => format!("{} and {}: {error}", self.certificate.display(), self.key.display()),
        })?;
        Ok(Pair { key: Arc::new(key), summary })
    }
}

/// Reads the public key in a file, as a SubjectPublicKeyInfo.
#[cfg(feature = "auth")]
pub fn public_key_file(path: &Path) -> Result<Vec<u8>, String> {
    let key = SubjectPublicKeyInfoDer::from_pem_slice(&read(path)?);
    key.map(|key| key.to_vec()).map_err(|_| "it has no public key in PEM".into())
}

/// Loads the root certificates in a file.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Loads the certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{} has no certificate in PEM", path.display()));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error| format!("cannot read {}: {error}", path.display());
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{} is larger than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(content)
}

/// Detects changes of files by their content, because links can be replaced and modification times reset.
#[derive(Debug, Default)]
pub(super) struct Watch {
    hasher: RandomState,
}

impl Watch {
    /// Returns a hash of the files' contents; a file that cannot be read has a hash too.
    pub(super) fn look<'a>(&self, files: impl Iterator<Item = &'a Path>) -> u64 {
        self.hasher.hash_one(files.map(|file| read(file).ok()).collect::<Vec<_>>())
    }
}
