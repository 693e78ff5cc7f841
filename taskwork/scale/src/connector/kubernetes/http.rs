//! Requests to the Kubernetes API: HTTP/1.1, over TLS unless it is `kubectl proxy`. Each request has its own
//! connection: there are only a few in five seconds, and tokens and authorities change. Times and sizes are bounded,
//! whatever the server does.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    pin, time,
};
use tokio_rustls::TlsConnector;

use super::access::Access;
use crate::connector::Refusal;

#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of an answer: a page of pods with all their fields.
const BODY_BYTES_MAX: usize = 32 << 20;

const HEAD_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Http {
    access: Access,
    timeout: Duration,
}

impl Http {
    pub(super) fn new(access: Access) -> Self {
        Self { access, timeout: TIMEOUT }
    }

    #[cfg(test)]
    pub(super) fn with_timeout(access: Access, timeout: Duration) -> Self {
        Self { access, timeout }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// Sends a request, with an optional body of a type.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Answer, Refusal> {
        let lost = |why: String| {
            Refusal::unknown(format!("the API of Kubernetes at {}: {why}", self.access.authority()))
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.access.prefix))
            .header(header::HOST, self.access.authority())
            .header(header::USER_AGENT, "taskwork")
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        if let Some(token) = self.access.token().map_err(Refusal::wrong)? {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map_or(String::new(), |(kind, body)| {
            if let Some(headers) = request.headers_mut() {
                headers.extend(header::HeaderValue::from_str(kind).map(|kind| (header::CONTENT_TYPE, kind)));
            }
            body
        });
        let request =
            request.body(body).map_err(|error| lost(format!("the request cannot be made: {error}")))?;
        let tls = self.access.authorities().map_err(Refusal::wrong)?.map(|pem| self.tls(&pem)).transpose()?;
        match time::timeout(self.timeout, self.exchange(request, tls)).await {
            Ok(answer) => answer.map_err(lost),
            Err(_) => Err(lost(format!("it does not answer within {} ms", self.timeout.as_millis()))),
        }
    }

    fn tls(&self, pem: &str) -> Result<TlsConnector, Refusal> {
        let wrong = |why: String| {
            Refusal::wrong(format!(
                "the certificates of the authorities of {}: {why}",
                self.access.authority()
            ))
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| wrong(format!("they are not PEM: {error}")))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("the file contains none".to_owned()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn exchange(&self, request: Request<String>, tls: Option<TlsConnector>) -> Result<Answer, String> {
        let unreached = |error| format!("it cannot be reached: {error}");
        let stream =
            TcpStream::connect((self.access.host.as_str(), self.access.port)).await.map_err(unreached)?;
        let Some(tls) = tls else { return talk(stream, request).await };
        let name = ServerName::try_from(self.access.host.clone()).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, stream).await.map_err(|error| format!("TLS has failed: {error}"))?;
        talk(stream, request).await
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<String>,
) -> Result<Answer, String> {
    let no_http = |error: hyper::Error| format!("this is not HTTP: {error}");
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    let talk = async move {
        let response = sender.send_request(request).await.map_err(no_http)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("its answer is too long, or incomplete: {error}"))?;
        Ok(Answer { status, body: body.to_bytes().to_vec() })
    };
    pin!(talk, connection);
    tokio::select! {
        answer = &mut talk => answer,
        // Data that has arrived is still read; the end of the connection shows whether the rest is missing.
        _ = &mut connection => talk.await,
    }
}
