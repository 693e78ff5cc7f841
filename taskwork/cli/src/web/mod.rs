//! The HTTP endpoints of a cluster or a node: metrics, liveness and readiness.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | metrics in the format of `OpenMetrics`, or the older one of Prometheus |
//! | `/livez` | 200 while the process answers |
//! | `/readyz` | 200 if the data is up to date, or the node is a member; otherwise 503 with the reason |
//!
//! ```text
//! connection ─▶ server ─▶ guard ─▶ metrics, livez, readyz
//!              TLS, sizes, times   names
//! ```
//!
//! The operator's dashboard adds more endpoints to the same server.

pub mod exposition;
pub mod family;
pub mod guard;
pub mod node;
pub mod server;
pub mod tls;
pub mod token;

use std::{convert::Infallible, fmt, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware,
    response::IntoResponse,
    routing::get,
};
use hyper_util::service::TowerToHyperService;
use taskwork::node::Health;
use tokio::net::TcpListener;

use self::{exposition::Format, family::Family, guard::Names};
use crate::Failure;

/// The endpoints of a server.
#[derive(Clone)]
pub struct Pages {
    metrics: Arc<dyn Fn(Format) -> String + Send + Sync>,
    ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Pages {
    /// Returns endpoints with these metrics. The server is ready unless `ready` returns a reason.
    pub fn new(
        metrics: impl Fn() -> Vec<Family> + Send + Sync + 'static,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let metrics = move |format| exposition::text(metrics(), format);
        Self { metrics: Arc::new(metrics), ready: Arc::new(ready) }
    }

    /// Returns the pages of a node.
    pub fn of_node(health: impl Fn() -> Health + Send + Sync + 'static) -> Self {
        let health = Arc::new(health);
        let its = Arc::clone(&health);
        Self::new(move || node::of_node(&its()), move || health().ready().map_err(str::to_owned))
    }

    /// Returns the routes of the endpoints.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }
}

/// Listens on an address that only this machine can reach; `option` is the option for it.
///
/// # Errors
/// If other machines could reach the address, or it cannot be listened on.
pub fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    server::listen_here(option, address)
}

/// Serves the endpoints on this machine until the process exits.
pub async fn serve(listener: TcpListener, pages: Pages) -> Infallible {
    let names = Arc::new(Names::of_this_machine());
    let router = pages.routes().layer(middleware::from_fn_with_state(names, guard::guard));
    server::serve(listener, None, TowerToHyperService::new(router)).await
}

async fn metrics(State(pages): State<Pages>, headers: HeaderMap) -> impl IntoResponse {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|ranges| ranges.to_str().ok());
    let format = Format::wanted(accepted);
    let kind = HeaderValue::from_static(format.content_type());
    ([(header::CONTENT_TYPE, kind)], (pages.metrics)(format))
}

async fn ready(State(pages): State<Pages>) -> (StatusCode, String) {
    match (pages.ready)() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}
