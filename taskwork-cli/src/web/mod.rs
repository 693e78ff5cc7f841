//! What is served over HTTP: the metrics of a cluster or a node, and whether it is alive and ready.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | metrics in the format of `OpenMetrics`, or the older one of Prometheus |
//! | `/livez` | 200 as long as the process answers |
//! | `/readyz` | 200 if what is shown is up to date, or the node is a member; otherwise 503 and why not |
//!
//! A dashboard serves more:
//!
//! | path | answer |
//! |---|---|
//! | `/` | the pages |
//! | `/api/view`, `/api/job/ID` | what they show, as JSON |
//! | `/api/job/ID/series.csv` | the job over time, as CSV |
//! | `/events` | what changes, as server-sent events |
//! | `/sign-in` | a form for the token, if there is one |
//! | `/api/operator`, `/api/operator/…` | who may act, and actions, if there are any: see `actions` |
//!
//! ```text
//! connection ─▶ server ─▶ guard ─▶ access ─▶ assets | api | events | metrics
//!              TLS, sizes, times   names   token           ▲
//!                                          board ──────────┘ ◀─ events of the cluster
//! ```

#[cfg(feature = "dashboard")]
mod access;
#[cfg(feature = "dashboard")]
mod actions;
#[cfg(feature = "dashboard")]
mod assets;
#[cfg(feature = "dashboard")]
mod board;
#[cfg(feature = "dashboard")]
mod compress;
mod costs;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "dashboard")]
pub(crate) mod detail;
#[cfg(feature = "dashboard")]
mod events;
mod exposition;
mod families;
mod guard;
mod node;
mod server;
#[cfg(feature = "dashboard")]
mod single;
#[cfg(feature = "dashboard")]
mod tls;
#[cfg(feature = "dashboard")]
mod topics;
#[cfg(test)]
#[cfg(feature = "dashboard")]
mod tests;

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
use taskwork::{Health, view::Snapshot};
use tokio::net::TcpListener;

#[cfg(feature = "dashboard")]
pub(crate) use self::{
    board::Board,
    dashboard::{Offer, Site},
    single::Single,
};
use self::{exposition::Format, guard::Names};
use crate::Failure;

/// What is served.
#[derive(Clone)]
pub(crate) struct Pages {
    metrics: Arc<dyn Fn(Format) -> String + Send + Sync>,
    ready: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Pages {
    /// Returns the pages of a cluster.
    #[cfg_attr(not(feature = "dashboard"), expect(dead_code, reason = "only the dashboard has a cluster"))]
    pub(crate) fn of_cluster(
        snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let metrics = move |format| exposition::text(families::of_cluster(&snapshot()), format);
        Self { metrics: Arc::new(metrics), ready: Arc::new(ready) }
    }

    /// Returns the pages of a node.
    pub(crate) fn of_node(health: impl Fn() -> Health + Send + Sync + 'static) -> Self {
        let health = Arc::new(health);
        let its = Arc::clone(&health);
        let metrics = move |format| exposition::text(node::of_node(&its()), format);
        let ready = move || health().ready().map_err(str::to_owned);
        Self { metrics: Arc::new(metrics), ready: Arc::new(ready) }
    }

    fn routes(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/livez", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }
}

/// Listens on an address of this machine alone, which `option` has named.
///
/// # Errors
/// If other machines could reach the address, or it cannot be listened on.
pub(crate) fn listen(option: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    server::listen_here(option, address)
}

/// Serves pages on this machine for ever.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) -> Infallible {
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
