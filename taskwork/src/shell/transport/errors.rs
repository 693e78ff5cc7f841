//! The errors of opening an endpoint.

use std::{io, net::SocketAddr};

use quinn::crypto::rustls::NoInitialCipherSuite;
use thiserror::Error;

/// The reasons why a node cannot listen.
#[derive(Debug, Error)]
pub(crate) enum TransportError {
    #[error("the key pair could not be created: {0}")]
    Identity(rcgen::Error),
    #[error("the certificate cannot be used: {0}")]
    Tls(rustls::Error),
    #[error("the ciphers that QUIC needs are missing: {0}")]
    Ciphers(NoInitialCipherSuite),
    #[error("{address}: cannot listen at this address: {cause}")]
    Listen { address: SocketAddr, cause: io::Error },
}

impl From<rcgen::Error> for TransportError {
    fn from(error: rcgen::Error) -> Self {
        Self::Identity(error)
    }
}

impl From<rustls::Error> for TransportError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<NoInitialCipherSuite> for TransportError {
    fn from(error: NoInitialCipherSuite) -> Self {
        Self::Ciphers(error)
    }
}
