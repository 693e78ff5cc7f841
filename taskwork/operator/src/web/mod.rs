//! The dashboard: the pages of a cluster over HTTP. See [`taskwork_cli::web`] for the endpoints of a node.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the pages |
//! | `/api/view`, `/api/job/ID` | the data of the pages, as JSON |
//! | `/api/job/ID/series.csv` | the history of a job, as CSV |
//! | `/events` | changes, as server-sent events |
//! | `/metrics`, `/livez`, `/readyz` | metrics of the cluster, liveness and readiness of the server |
//! | `/sign-in` | the form for the token, if there is one |
//! | `/api/operator`, `/api/operator/…` | operators and their actions, if they are enabled: see `actions` |
//!
//! ```text
//! connection ─▶ server ─▶ guard ─▶ access ─▶ assets | api | events | metrics
//!              TLS, sizes, times   names   token           ▲
//!                                          board ──────────┘ ◀─ events of the cluster
//! ```

mod access;
mod actions;
mod assets;
mod board;
mod compress;
pub(crate) mod controller;
mod costs;
mod dashboard;
pub(crate) mod detail;
mod documents;
mod events;
mod families;
mod single;
mod topics;
#[cfg(test)]
mod tests;

use taskwork::view::Snapshot;
use taskwork_cli::web::{Pages, guard, server};

use self::controller::Controller;
pub(crate) use self::{
    board::Board,
    dashboard::{Offer, Site},
    single::Single,
};

/// Returns the endpoints for metrics, liveness and readiness.
fn pages_of_cluster(
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
    controller: impl Fn() -> Option<Controller> + Send + Sync + 'static,
    ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) -> Pages {
    let families = move || {
        let mut families = families::of_cluster(&snapshot());
        families.extend(controller::families(controller().as_ref()));
        families
    };
    Pages::new(families, ready)
}
