//! Mutual authentication: a certificate is accepted if a current member has published its fingerprint; signatures of
//! authorities are not checked. While the records of some members are unread, the accepting side provisionally
//! accepts any certificate: the hello contains the peer's id, and is answered once that member's record was read.
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

/// The application protocol. Connections with a different one are rejected in the handshake.
const ALPN: &[u8] = b"taskwork/1";

/// Requires the certificate of the dialled node or, without `expected`, of any member.
#[derive(Debug)]
struct Pinned {
    /// The fingerprint of the dialled node.
    expected: Option<Fingerprint>,
    peers: Arc<Peers>,
    provider: Arc<CryptoProvider>,
}

/// Returns the configuration for accepting connections. Before its hello is accepted, a peer cannot send messages
/// or more data than a hello needs.
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
    // Connection attempts are normally examined immediately; these limits apply if they queue up.
    config.max_incoming(INCOMING_MAX).incoming_buffer_size(INCOMING_BYTES_MAX);
    config.incoming_buffer_size_total(INCOMING_ALL_BYTES_MAX);
    Ok(config)
}

/// Lets a peer send messages once its hello was accepted.
pub(super) fn admit(connection: &quinn::Connection, limits: &TransportLimits) {
    connection.set_receive_window(limits.unread_bytes_max.into());
    connection.set_max_concurrent_uni_streams(limits.streams_max.into());
}

/// The receive window before the hello is accepted, in bytes.
const NARROW_BYTES: u32 = 4 << 10;
/// The maximum number of connection attempts that were not examined yet.
const INCOMING_MAX: usize = 1024;
/// The maximum data received for one unexamined attempt, in bytes.
const INCOMING_BYTES_MAX: u64 = 64 << 10;
/// The maximum data received for all unexamined attempts, in bytes.
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
        // One for the hello; the limit is raised afterwards.
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
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
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
        ServerCertVerifier::verify_tls12_signature(self, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}
