//! Documents of running jobs on request: `GET /api/job/{id}/document/{name}`, with the argument as `?about=`.
//!
//! A request costs the job's nodes work and is written to `ZooKeeper`, so only documents that the job offers are
//! requested, and few at a time.

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::Response,
    routing::get,
};
use serde_json::json;
use taskwork::{
    Client, JobId,
    display::{Document, Offer},
};
use taskwork_cli::command::job_id;
use tokio::sync::Semaphore;

use super::{actions::Failed, board::Board, dashboard::json, guard::Refusal};

/// The maximum time to wait for a document.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum time to wait for `ZooKeeper`.
const PATIENCE: Duration = Duration::from_secs(15);
/// The maximum number of documents requested at the same time.
const REQUESTS_MAX: usize = 2;

/// A document that is being made.
pub(super) type Making<'a> = Pin<Box<dyn Future<Output = Result<Document, Failed>> + Send + 'a>>;

/// Requests documents of jobs.
pub(super) trait Library: Send + Sync {
    /// Returns a document of a job, in a bounded time.
    fn document<'a>(&'a self, job: &'a JobId, name: &'a str, about: Option<&'a str>) -> Making<'a>;
}

/// Returns a library that asks the nodes of a cluster.
pub(super) fn by_client(client: &Client) -> Arc<dyn Library> {
    Arc::new(client.with_patience(Some(PATIENCE)))
}

impl Library for Client {
    fn document<'a>(&'a self, job: &'a JobId, name: &'a str, about: Option<&'a str>) -> Making<'a> {
        Box::pin(async move { Ok(Client::document(self, job, name, about, DOCUMENT_TIMEOUT).await?) })
    }
}

/// The state of the route.
struct Desk {
    library: Arc<dyn Library>,
    board: Arc<Board>,
    free: Semaphore,
}

/// Returns the route; none without a library, as for a record.
pub(super) fn routes(library: Option<Arc<dyn Library>>, board: &Arc<Board>) -> Router {
    let Some(library) = library else { return Router::new() };
    let desk = Desk { library, board: Arc::clone(board), free: Semaphore::new(REQUESTS_MAX) };
    Router::new().route("/api/job/{id}/document/{name}", get(document)).with_state(Arc::new(desk))
}

async fn document(
    State(desk): State<Arc<Desk>>,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = query.unwrap_or_default();
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    let about = parameters.find_map(|(name, value)| (name == "about").then(|| value.into_owned()));
    let missing = |what: &str| Refusal(StatusCode::NOT_FOUND, what.to_owned());
    // First, so that requests over the limit do not use the board.
    let Ok(_free) = desk.free.try_acquire() else {
        let why = "other documents are being made: try again in some seconds".to_owned();
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let job = desk.board.about(&id).ok_or_else(|| missing("there is no such job"))?;
    let is_it = |offer: &Offer| offer.name == name && offer.argument.is_none() == about.is_none();
    if !job.display.iter().any(|display| display.documents.iter().any(is_it)) {
        return Err(missing("the job offers no such document, or it is over"));
    }
    let id = job_id(&id).map_err(|_| missing("there is no such job"))?;
    let made = desk.library.document(&id, &name, about.as_deref()).await;
    let made = made.map_err(|Failed { status, why }| Refusal(status, why))?;
    Ok(json(json!({ "format": made.format, "content": made.into_text() }).to_string()))
}
