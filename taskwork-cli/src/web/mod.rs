//! What is served over HTTP: the metrics of a cluster or a node, and whether it is alive and ready.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | metrics in the format of `OpenMetrics` |
//! | `/livez` | 200 as long as the process answers |
//! | `/readyz` | 200 if what is shown is up to date, or the node is a member; otherwise 503 and why not |

mod exposition;
mod families;
mod node;
mod server;

use std::{convert::Infallible, fmt, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::service::TowerToHyperService;
use taskwork::{Health, view::Snapshot};
use tokio::net::TcpListener;

use crate::Failure;

/// What is served.
#[derive(Clone)]
pub(crate) struct Pages {
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Pages {
    /// Returns the pages of a cluster.
    #[cfg_attr(not(feature = "dashboard"), expect(dead_code, reason = "only the dashboard has a cluster"))]
    pub(crate) fn of_cluster(
        snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let metrics = move || exposition::text(families::of_cluster(&snapshot()));
        Self { metrics: Arc::new(metrics), ready: Arc::new(ready) }
    }

    /// Returns the pages of a node.
    pub(crate) fn of_node(health: impl Fn() -> Health + Send + Sync + 'static) -> Self {
        let health = Arc::new(health);
        let its = Arc::clone(&health);
        let metrics = move || exposition::text(node::of_node(&its()));
        let ready = move || health().ready().map_err(str::to_owned);
        Self { metrics: Arc::new(metrics), ready: Arc::new(ready) }
    }

    fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .layer(middleware::from_fn(without_body))
            .with_state(self)
    }
}

/// Where pages are served, which `option` has named.
///
/// # Errors
/// If other machines could reach the address, or it cannot be listened on.
pub(crate) async fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    server::listen(option, address).await
}

/// Serves pages for ever.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) -> Infallible {
    server::serve(listener, TowerToHyperService::new(pages.router())).await
}

async fn metrics(State(pages): State<Pages>) -> impl IntoResponse {
    let kind = HeaderValue::from_static(exposition::CONTENT_TYPE);
    ([(header::CONTENT_TYPE, kind)], (pages.metrics)())
}

async fn ready(State(pages): State<Pages>) -> (StatusCode, String) {
    match (pages.ready)() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

/// Refuses requests with a body, which no page needs, without reading it.
async fn without_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let close = [(header::CONNECTION, HeaderValue::from_static("close"))];
    (StatusCode::PAYLOAD_TOO_LARGE, close, Body::from("no page takes a body\n")).into_response()
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        time::Duration,
    };

    use super::*;

    async fn served() -> SocketAddr {
        let listener = listen("--listen", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ready = || Err("not yet".to_owned());
        tokio::spawn(serve(listener, Pages::of_cluster(Snapshot::default, ready)));
        address
    }

    async fn answer(to: SocketAddr, request: &[u8]) -> String {
        let request = request.to_vec();
        let asking = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // A server that has heard enough may close before it has read everything.
            let _ = stream.write_all(&request);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        });
        asking.await.unwrap()
    }

    async fn get(to: SocketAddr, path: &str) -> String {
        answer(to, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await
    }

    #[tokio::test]
    async fn each_page_is_served_and_nothing_else() {
        let at = served().await;
        let metrics = get(at, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains(exposition::CONTENT_TYPE));
        assert!(metrics.ends_with("# EOF\n") && metrics.contains("taskwork_nodes_lost_total 0"), "{metrics}");
        assert!(get(at, "/livez").await.ends_with("alive\n"));
        let ready = get(at, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("not yet\n"), "{ready}");
        assert!(get(at, "/").await.starts_with("HTTP/1.1 404 "));
        let post = b"POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        assert!(answer(at, post).await.starts_with("HTTP/1.1 405 "));
    }

    #[tokio::test]
    async fn what_others_send_is_bounded() {
        let at = served().await;
        let body = b"GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\nbody";
        assert!(answer(at, body).await.starts_with("HTTP/1.1 413 "));
        let head = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "x".repeat(100_000));
        let refused = answer(at, head.as_bytes()).await;
        assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431 "), "{refused}");
        let garbage = answer(at, b"\0\xff no HTTP\r\n\r\n").await;
        assert!(garbage.is_empty() || garbage.starts_with("HTTP/1.1 400 "), "{garbage}");
        assert!(get(at, "/livez").await.ends_with("alive\n"), "it still serves");
    }

    #[tokio::test]
    async fn an_address_that_others_could_reach_is_refused_with_what_to_do() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9000"] {
            let refused = listen("--listen", address.parse().unwrap()).await.unwrap_err().to_string();
            for word in ["--listen", address, "127.0.0.1", "proxy", "ssh -L"] {
                assert!(refused.contains(word), "no {word} in {refused}");
            }
        }
    }
}
