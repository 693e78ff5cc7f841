//! A node's identity for its peers: its key pair, and the fingerprint of its certificate.

use std::{fmt, str::FromStr};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

use super::errors::TransportError;
use crate::id::NodeId;

/// The SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint([u8; 32]);

#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a fingerprint: 64 hexadecimal digits")]
pub(crate) struct FingerprintError(String);

/// A node's certificate and its key. Created at each start and never stored.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    /// Creates a key pair with a self-signed certificate.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub(crate) fn generate(node: NodeId) -> Result<Self, TransportError> {
        let made = rcgen::generate_simple_self_signed([node.to_string()])?;
        Ok(Self { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() })
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }
}

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let refused = || FingerprintError(text.to_owned());
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refused());
        }
        let mut bytes = [0; 32];
        for (byte, place) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[place..place + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("fingerprint", &self.fingerprint().to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_round_trips_and_garbage_is_rejected() {
        let fingerprint = Identity::generate(NodeId(1)).unwrap().fingerprint();
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        for text in ["", "00", &"é".repeat(32), &"0".repeat(63), &"+0".repeat(32)] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn debug_output_omits_the_key() {
        let identity = Identity::generate(NodeId(1)).unwrap();
        assert!(!format!("{identity:?}").contains("key"));
    }
}
