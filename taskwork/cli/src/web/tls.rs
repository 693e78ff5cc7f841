//! The certificate and the further names of a server that other machines can reach.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use taskwork::client::{read_secret, read_text};
pub use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::guard::host_name;
use crate::Failure;

/// The maximum size of a key, and of the certificates, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The options of a server with TLS.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct TlsArguments {
    /// A further host name or address of this server, without a port, such as that of this machine or of a proxy; may be
    /// repeated. The address to serve on and localhost are always accepted.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub host_name: Vec<String>,
    /// The certificate of the server in PEM, followed by its chain.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM; readable only by its owner, or a group assigned by root.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsArguments {
    /// Returns whether the options have a certificate.
    pub fn has_certificate(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Reads the certificate and its key, if the options have them.
    ///
    /// # Errors
    /// If one cannot be read, the key is readable by others, or they do not match.
    pub fn acceptor(&self) -> Result<Option<TlsAcceptor>, Failure> {
        let files = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        files.map(|(certificates, key)| acceptor(certificates, key)).transpose()
    }
}

/// Reads a certificate, with its chain, and its key, all in PEM.
fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let refused = |option: &str, file: &Path, why: &dyn std::fmt::Display| {
        Failure::usage(format!("{option} {}: {why}", file.display()))
    };
    let chain =
        read_text(certificates, PEM_BYTES_MAX).map_err(|why| refused("--tls-cert", certificates, &why))?;
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| refused("--tls-cert", certificates, &error))?;
    let private = read_secret(key, PEM_BYTES_MAX).map_err(|why| refused("--tls-key", key, &why))?;
    let private = PrivateKeyDer::from_pem_slice(private.as_bytes());
    let private = private.map_err(|error| refused("--tls-key", key, &error))?;
    if chain.is_empty() {
        return Err(refused("--tls-cert", certificates, &"it holds no certificate"));
    }
    let provider = Arc::new(ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.and_then(|tls| tls.with_no_client_auth().with_single_cert(chain, private));
    let mut tls = tls.map_err(|error| refused("--tls-cert", certificates, &error))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(tls)))
}
