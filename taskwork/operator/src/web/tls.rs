//! The certificate of the server.

use std::{path::Path, sync::Arc};

use taskwork::client::{read_secret, read_text};
use taskwork_cli::Failure;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// The maximum size of a key, and of the certificates, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Reads a certificate, with its chain, and its key, all in PEM.
///
/// # Errors
/// If one cannot be read, the key is readable by others, or they do not match.
pub(crate) fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
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
