//! Requests to the metadata service of a cloud, and to a node of this machine: unencrypted HTTP/1.1 to an address on
//! the machine's own link, never through a proxy. The time and size of an answer are bounded.

use std::{
    io,
    time::{Duration, SystemTime},
};

use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::{net::TcpStream, pin, time};

use super::answer::Garbled;

/// A metadata service, or the endpoint of a node.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// Its host and port.
    host: String,
    /// The time limit of a request.
    timeout: Duration,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The time by the clock of the service.
    pub(super) date: Option<SystemTime>,
    /// The header that identifies Google's service.
    pub(super) flavor: Option<String>,
    pub(crate) body: String,
}

/// The reason why there is no usable answer.
#[derive(Debug, Error)]
pub(crate) enum Trouble {
    #[error("it does not answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("it cannot be reached: {0}")]
    Unreached(#[source] io::Error),
    #[error("this is no HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("its answer is longer than {BODY_BYTES_MAX} bytes, or breaks off")]
    Body,
    #[error("it answers with status {0}")]
    Status(u16),
    #[error("this is not the metadata service of {0}")]
    Foreign(&'static str),
    #[error("{0}")]
    Garbled(#[from] Garbled),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
}

/// The time limit of a request: the service is on the machine's own link.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum size of an answer.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The size of the read buffer, which also limits the headers of an answer.
const BUFFER_BYTES: usize = 16 << 10;

impl Service {
    pub(super) fn of(host: String) -> Self {
        Self { host, timeout: TIMEOUT }
    }

    #[cfg(any(test, feature = "health"))]
    pub(crate) fn with_timeout(host: String, timeout: Duration) -> Self {
        Self { host, timeout }
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Answer, Trouble> {
        self.ask(Method::GET, path, headers).await
    }

    pub(super) async fn put(&self, path: &str, headers: &[(&str, &str)]) -> Result<Answer, Trouble> {
        self.ask(Method::PUT, path, headers).await
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Answer, Trouble> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header(header::CONNECTION, "close").body(String::new())?;
        match time::timeout(self.timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble::Late(self.timeout)),
        }
    }

    /// Each request uses a new connection: there is one per second, and a long-lived connection may break.
    async fn exchange(&self, request: Request<String>) -> Result<Answer, Trouble> {
        let stream = TcpStream::connect(&self.host).await.map_err(Trouble::Unreached)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let talk = async move {
            let response = sender.send_request(request).await?;
            let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            let (date, flavor) = (header("date"), header("metadata-flavor"));
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|_| Trouble::Body)?.to_bytes();
            let date = date.and_then(|date| httpdate::parse_http_date(&date).ok());
            Ok(Answer { status, date, flavor, body: String::from_utf8_lossy(&body).into_owned() })
        };
        pin!(talk, connection);
        tokio::select! {
            answer = &mut talk => answer,
            // The connection may be closed after data has arrived, which must still be read; missing data is an error
            // there.
            _ = &mut connection => talk.await,
        }
    }
}

impl Answer {
    /// Checks that the status is 200.
    pub(super) fn found(self) -> Result<Self, Trouble> {
        if self.status == 200 { Ok(self) } else { Err(Trouble::Status(self.status)) }
    }
}
