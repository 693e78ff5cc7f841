//! A plain stream of quinn with its default settings, as the reference for a fetch.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use quinn::{
    ClientConfig, Connection, Endpoint, ServerConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};

/// The buffer of the receiver, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The sender of the bytes.
pub(super) struct Source {
    address: SocketAddr,
    certificate: Vec<u8>,
}

/// Sends the pieces on each stream that is opened, in the current runtime.
pub(super) fn serve(pieces: Vec<Bytes>) -> Result<Source> {
    let made = rcgen::generate_simple_self_signed(["node".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certificate = made.cert.der().clone();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let endpoint = Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let source = Source { address: endpoint.local_addr()?, certificate: certificate.to_vec() };
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(send(incoming, pieces.clone()));
        }
    });
    Ok(source)
}

async fn send(incoming: quinn::Incoming, pieces: Vec<Bytes>) -> Result<()> {
    let connection = incoming.await?;
    while let Ok((mut stream, _question)) = connection.accept_bi().await {
        stream.write_all_chunks(&mut pieces.clone()).await?;
        stream.finish()?;
    }
    Ok(())
}

/// Connects to a source, in the current runtime. Keep the endpoint as long as the connection.
pub(super) async fn connect(source: &Source) -> Result<(Connection, Endpoint)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(source.certificate.clone()))?;
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let connecting = endpoint.connect_with(config, source.address, "node")?;
    Ok((connecting.await.context("the source cannot be reached")?, endpoint))
}

/// Receives all bytes of one stream, drops them, and returns their number.
pub(super) async fn receive(connection: &Connection) -> Result<u64> {
    let (mut question, mut stream) = connection.open_bi().await?;
    question.write_all(b"go").await?;
    question.finish()?;
    let (mut buffer, mut bytes) = (vec![0; BUFFER_BYTES], 0);
    while let Some(more) = stream.read(&mut buffer).await? {
        bytes += more as u64;
    }
    Ok(bytes)
}
