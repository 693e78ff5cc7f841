//! The program of a job, if it travels with the job to agents.

use serde::{Deserialize, Serialize};

/// A program that travels with a job: its file, and the certificate of the submitter who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroughtProgram {
    /// The name of the file's content, by which members fetch it from each other: its length in bytes, a hyphen, and its
    /// BLAKE3 hash.
    pub object: String,
    /// The processor and the system for which it was built, such as `x86_64-linux`.
    pub target: String,
    /// The member that provided it at the submission.
    pub from: String,
    /// The submitter's certificate and the intermediate ones, in PEM; empty without a certificate.
    #[serde(default)]
    pub certificates: String,
    /// The number of the signature's scheme in TLS; 0 without a certificate.
    #[serde(default)]
    pub scheme: u16,
    /// The signature with the key of the certificate, in hexadecimal digits.
    #[serde(default)]
    pub signature: String,
}
