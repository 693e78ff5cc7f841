//! Mutual authentication: a certificate is accepted if a current member has published its fingerprint,
//! whoever signed it. While the records of some members were not read, any certificate passes on the
//! accepting side at first: the hello says whose it should be, and is answered when that record was read.
//! Until then the connection is [narrow](server_config).

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    version::TLS13,
};

use super::{Fingerprint, Identity, Peers, TransportError, TransportLimits};

/// The application protocol: connections with another one are rejected in the handshake.
const ALPN: &[u8] = b"taskwork/1";

/// Requires the certificate of the dialled node or, without `expected`, of any member.
#[derive(Debug)]
struct Pinned {
    /// The fingerprint of the dialled node.
    expected: Option<Fingerprint>,
    peers: Arc<Peers>,
    provider: Arc<CryptoProvider>,
}

/// Returns the configuration for accepting connections. Before the hello, the other side can send no
/// messages, and no more than a hello takes.
pub(super) fn server_config(
    identity: &Identity,
    peers: &Arc<Peers>,
    limits: &TransportLimits,
) -> Result<quinn::ServerConfig, TransportError> {
    let pinned = Arc::new(Pinned::new(None, peers));
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&pinned.provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(pinned)
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut narrow = transport_config(limits);
    narrow.max_concurrent_uni_streams(0_u32.into()).receive_window(NARROW_BYTES.into());
    config.transport_config(Arc::new(narrow));
    // Connection attempts are examined at once; these are the limits for those in between.
    config.max_incoming(INCOMING_MAX).incoming_buffer_size(INCOMING_BYTES_MAX);
    config.incoming_buffer_size_total(INCOMING_ALL_BYTES_MAX);
    Ok(config)
}

/// Lets a peer whose hello was accepted send messages.
pub(super) fn admit(connection: &quinn::Connection, limits: &TransportLimits) {
    connection.set_receive_window(limits.unread_bytes_max.into());
    connection.set_max_concurrent_uni_streams(limits.streams_max.into());
}

/// The maximum number of bytes that have arrived on a connection before its hello was accepted.
const NARROW_BYTES: u32 = 4 << 10;
/// The maximum number of connection attempts that were not yet examined.
const INCOMING_MAX: usize = 1024;
/// The maximum data received for one of these, in bytes.
const INCOMING_BYTES_MAX: u64 = 64 << 10;
/// The maximum data received for all of these, in bytes.
const INCOMING_ALL_BYTES_MAX: u64 = 4 << 20;

/// Returns the configuration for dialling the node with this fingerprint.
pub(super) fn client_config(
    identity: &Identity,
    peers: &Arc<Peers>,
    expected: Fingerprint,
    limits: &TransportLimits,
) -> Result<quinn::ClientConfig, TransportError> {
    let pinned = Arc::new(Pinned::new(Some(expected), peers));
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&pinned.provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_client_auth_cert(vec![identity.certificate()], identity.key())?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport_config(limits)));
    Ok(config)
}

fn transport_config(limits: &TransportLimits) -> quinn::TransportConfig {
    let mut config = quinn::TransportConfig::default();
    config
        .max_concurrent_uni_streams(limits.streams_max.into())
        // For the hello; there may be more after it.
        .max_concurrent_bidi_streams(1_u32.into())
        .receive_window(limits.unread_bytes_max.into())
        .keep_alive_interval(Some(limits.keep_alive))
        .max_idle_timeout(limits.idle.try_into().ok());
    config
}

impl Pinned {
    fn new(expected: Option<Fingerprint>, peers: &Arc<Peers>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self { expected, peers: Arc::clone(peers), provider }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let fingerprint = Fingerprint::of(certificate);
        let trusted = match self.expected {
            Some(expected) => fingerprint == expected,
            None => self.peers.may_know(fingerprint),
        };
        if trusted { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }

    fn check_tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn check_tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
