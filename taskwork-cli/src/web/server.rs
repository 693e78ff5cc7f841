//! A small HTTP server, for those who look at a cluster or a node: bounded in everything that others can send.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, Response, body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore, time};

use crate::Failure;

/// The maximum number of connections; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// The maximum size of the head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// The time in which the head of a request must have come, also of the next one on the same connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which a connection ends in any case.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after a connection could not be accepted, such as for want of files.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Listens on an address.
///
/// # Errors
/// If it is not one of this machine alone, or cannot be listened on.
pub(crate) async fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{option} {address} could be reached by other machines, which need neither a password nor TLS to read it. \
             Listen on this machine alone, as in {option} 127.0.0.1:{port}, and let a proxy with TLS and a sign-in, \
             or a tunnel (ssh -L {port}:127.0.0.1:{port}), lead there",
            port = address.port(),
        )));
    }
    let refused = |error| Failure::failed(format!("{option} {address} cannot be listened on: {error}"));
    TcpListener::bind(address).await.map_err(refused)
}

/// Serves requests for ever.
pub(crate) async fn serve<S, B>(listener: TcpListener, service: S) -> Infallible
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { continue };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                time::sleep(REFUSED_PAUSE).await;
                continue;
            }
        };
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Ok(Err(error)) = time::timeout(CONNECTION_TIMEOUT, serving).await {
                tracing::debug!(%error, "a connection has ended");
            }
        });
    }
}
