//! The certificate of a submitter, whose signature vouches for the program of a job.
//!
//! The submitter signs the name of the program's content, with the cluster and the release, by the key of its client
//! certificate for `ZooKeeper`. An agent checks the chain of certificates up to an authority, and the signature.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use rustls::{
    SignatureScheme,
    crypto::ring::{default_provider, sign::any_supported_type},
    pki_types::{
        CertificateDer, DnsName, PrivateKeyDer, ServerName, TrustAnchor, UnixTime, pem::PemObject as _,
    },
};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use zk::{
    ClusterPaths, Release,
    job::{BroughtProgram, JobRecord},
};

use super::ClientError;

/// The maximum number of certificates in a chain.
const CHAIN_MAX: usize = 8;

/// The schemes of signatures, the preferred ones first.
const SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

/// The submitters whose programs an agent runs.
#[derive(Debug, Clone)]
pub struct Submitters(Option<Certified>);

#[derive(Debug, Clone)]
struct Certified {
    authorities: Vec<TrustAnchor<'static>>,
    /// Empty for all that an authority has certified.
    allowed: Vec<Allowed>,
    /// The fingerprint of the agent's own certificate.
    own: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    Name(DnsName<'static>),
    Fingerprint(String),
}

/// The reasons why an agent does not run the program of a job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SubmitterError {
    /// The program has no signature.
    #[error(
        "its submitter has no certificate: submit it with --zk-tls-cert and --zk-tls-key, or run the agent with \
         --allow-any"
    )]
    Uncertified,
    /// No authority has signed the submitter's certificate, or it is not valid now.
    #[error(
        "the certificate of its submitter is not valid for this agent: {reason}. Use one signed by its authority"
    )]
    Certificate {
        /// The defect.
        reason: String,
    },
    /// The signature is not for this program, release and cluster.
    #[error("its signature is not that of its submitter for this program: submit it again")]
    Signature,
    /// The agent does not allow this submitter.
    #[error(
        "this agent does not allow its submitter: run the agent with --allow {fingerprint}, or a name in that certificate"
    )]
    NotAllowed {
        /// The SHA-256 of the submitter's certificate, in hexadecimal digits.
        fingerprint: String,
    },
    /// The program is signed with the certificate of the agent, which all programs on its machine can read.
    #[error(
        "it is signed with the agent's own certificate, which its programs can use, too: submit it with another one, or run \
         the agent with --allow {fingerprint}"
    )]
    Own {
        /// The SHA-256 of that certificate, in hexadecimal digits.
        fingerprint: String,
    },
}

impl Submitters {
    /// Accepts every submitter, also without a certificate: everybody who can write to ZooKeeper.
    pub fn any() -> Self {
        Self(None)
    }

    /// Accepts submitters with a certificate of one of these authorities, in PEM. `allowed` restricts them, if it is not
    /// empty: each entry is a DNS name in the certificate, not only one that a wildcard in it covers, or the SHA-256 of the
    /// certificate in hexadecimal digits, with or without colons.
    ///
    /// # Errors
    /// If there is no authority, or an entry is neither.
    pub fn certified(authorities: &str, allowed: &[String]) -> Result<Self, ClientError> {
        let invalid = |reason: String| ClientError::Invalid { reason };
        let anchors = certificates(authorities)
            .and_then(|list| {
                let anchor = |certificate: &CertificateDer<'_>| {
                    let anchor = anchor_from_trusted_cert(certificate).map_err(|error| error.to_string())?;
                    Ok(anchor.to_owned())
                };
                list.iter().map(anchor).collect::<Result<Vec<_>, String>>()
            })
            .map_err(|reason| {
                invalid(format!("the certificates of the submitters' authorities: {reason}"))
            })?;
        if anchors.is_empty() {
            return Err(invalid("the file of the submitters' authorities has no certificate".to_owned()));
        }
        let parsed = |text: &String| {
            Allowed::parse(text).ok_or_else(|| {
                invalid(format!(
                    "{text:?} is neither a DNS name nor the SHA-256 of a certificate (64 digits)"
                ))
            })
        };
        let allowed = allowed.iter().map(parsed).collect::<Result<_, _>>()?;
        Ok(Self(Some(Certified { authorities: anchors, allowed, own: None })))
    }

    /// Refuses programs that are signed with this certificate, in PEM, unless it is allowed explicitly. The agent's own
    /// certificate is readable for all programs that it runs, so each of them could sign further programs for all agents.
    ///
    /// # Errors
    /// If it contains no certificate.
    pub fn except(mut self, own: &str) -> Result<Self, ClientError> {
        let invalid = |reason: String| ClientError::Invalid { reason };
        let list = certificates(own)
            .map_err(|reason| invalid(format!("the agent's certificate for ZooKeeper: {reason}")))?;
        let first = list.first().ok_or_else(|| {
            invalid("the file of the agent's certificate for ZooKeeper has no certificate".to_owned())
        })?;
        if let Some(certified) = &mut self.0 {
            certified.own = Some(fingerprint_of(first));
        }
        Ok(self)
    }

    /// Checks that the submitter of a job may run its program on this machine.
    ///
    /// # Errors
    /// Why not.
    pub fn check(
        &self,
        cluster: &str,
        record: &JobRecord,
        brought: &BroughtProgram,
    ) -> Result<(), SubmitterError> {
        let Some(certified) = &self.0 else { return Ok(()) };
        if brought.certificates.is_empty() {
            return Err(SubmitterError::Uncertified);
        }
        let refused = |reason: String| SubmitterError::Certificate { reason };
        let chain = certificates(&brought.certificates).map_err(refused)?;
        let Some((own, others)) = chain.split_first().filter(|(_, others)| others.len() < CHAIN_MAX) else {
            return Err(refused(format!("expected 1 to {CHAIN_MAX} certificates, not {}", chain.len())));
        };
        let certificate = EndEntityCert::try_from(own).map_err(|error| refused(error.to_string()))?;
        let algorithms = default_provider().signature_verification_algorithms;
        certificate
            .verify_for_usage(
                algorithms.all,
                &certified.authorities,
                others,
                UnixTime::now(),
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(|error| refused(error.to_string()))?;
        let message =
            message(cluster, &record.program, &record.program_version, &brought.target, &brought.object);
        let signature = bytes(&brought.signature).ok_or(SubmitterError::Signature)?;
        let scheme = SCHEMES.into_iter().find(|scheme| u16::from(*scheme) == brought.scheme);
        let mut fitting = algorithms.mapping.iter().filter(|(known, _)| Some(*known) == scheme);
        let mut fitting = fitting.next().into_iter().flat_map(|(_, algorithms)| algorithms.iter());
        if !fitting.any(|algorithm| certificate.verify_signature(*algorithm, &message, &signature).is_ok()) {
            return Err(SubmitterError::Signature);
        }
        let fingerprint = fingerprint_of(own);
        let is_allowed = |allowed: &Allowed| match allowed {
            Allowed::Name(name) => {
                let is_entry = |entry: &str| entry.eq_ignore_ascii_case(name.as_ref());
                // A wildcard in the certificate covers names that its authority has not checked one by one.
                certificate.valid_dns_names().any(is_entry)
                    && certificate
                        .verify_is_valid_for_subject_name(&ServerName::DnsName(name.borrow()))
                        .is_ok()
            }
            Allowed::Fingerprint(allowed) => *allowed == fingerprint,
        };
        if certified.allowed.iter().any(is_allowed) {
            return Ok(());
        }
        if certified.own.as_ref() == Some(&fingerprint) {
            return Err(SubmitterError::Own { fingerprint });
        }
        if certified.allowed.is_empty() {
            return Ok(());
        }
        Err(SubmitterError::NotAllowed { fingerprint })
    }
}

impl Allowed {
    fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        if digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Some(Self::Fingerprint(digits.to_ascii_lowercase()));
        }
        DnsName::try_from(text).ok().map(|name| Self::Name(name.to_owned()))
    }
}

/// Signs a program with the certificate and the key of its submitter, in PEM. The certificate, scheme and signature of
/// `brought` are set.
///
/// # Errors
/// If the key cannot be used, with the reason.
pub(super) fn sign(
    identity: &(String, String),
    cluster: &ClusterPaths,
    release: &Release,
    brought: &mut BroughtProgram,
) -> Result<(), String> {
    let (certificate, key) = identity;
    let chain = certificates(certificate)?.len();
    if !(1..=CHAIN_MAX).contains(&chain) {
        return Err(format!(
            "its file has {chain} certificates; agents accept 1 to {CHAIN_MAX}: keep only its chain"
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
    let key = any_supported_type(&key).map_err(|error| error.to_string())?;
    let signer =
        key.choose_scheme(&SCHEMES).ok_or("its key has no supported kind: use Ed25519, ECDSA or RSA")?;
    let Release { program, version } = release;
    let message = message(cluster.name(), program, version, &brought.target, &brought.object);
    let signature = signer.sign(&message).map_err(|error| error.to_string())?;
    brought.certificates = only_certificates(certificate);
    brought.scheme = signer.scheme().into();
    brought.signature = hex(&signature);
    Ok(())
}

/// Returns the signed text. No part contains a line break: the names of clusters and releases are checked, and the others
/// are compared with known ones.
fn message(cluster: &str, program: &str, version: &str, target: &str, object: &str) -> Vec<u8> {
    format!("taskwork program\n{cluster}\n{program}\n{version}\n{target}\n{object}\n").into_bytes()
}

/// Returns the certificates of a PEM file, which may also contain the key: a record is not secret.
fn only_certificates(pem: &str) -> String {
    let (mut certificates, mut is_inside) = (String::new(), false);
    for line in pem.lines() {
        is_inside |= line.starts_with("-----BEGIN CERTIFICATE-----");
        if is_inside {
            certificates.extend([line, "\n"]);
        }
        is_inside &= !line.starts_with("-----END ");
    }
    certificates
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let list = CertificateDer::pem_slice_iter(pem.as_bytes()).take(CHAIN_MAX.max(1000));
    list.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Returns the SHA-256 of a certificate, in hexadecimal digits.
fn fingerprint_of(certificate: &CertificateDer<'_>) -> String {
    hex(digest(&SHA256, certificate).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing into a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Returns the bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_hex && digits.len().is_multiple_of(2)).then(|| digits.as_bytes().chunks(2).map(pair).collect())?
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
