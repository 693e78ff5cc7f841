//! Documents of running jobs on request: `GET /api/job/{id}/document/{name}`, with the argument as `?about=`.
//!
//! A request costs the job's nodes work and is written to `ZooKeeper`, so only documents that the job offers are
//! requested, and few at a time.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
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
/// The time for which a document without an argument is kept. Pages request some of them again after this time.
const KEPT_FOR: Duration = Duration::from_secs(15);
/// The maximum number of kept documents of up to 500 KiB.
const KEPT_MAX: usize = 8;

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
    kept: Mutex<Kept>,
}

/// The last documents without an argument: their job, name, time and JSON.
#[derive(Default)]
struct Kept(VecDeque<(String, String, Instant, Bytes)>);

impl Kept {
    fn get(&mut self, now: Instant, id: &str, name: &str) -> Option<Bytes> {
        self.0.retain(|(.., at, _)| now.saturating_duration_since(*at) < KEPT_FOR);
        let kept = self.0.iter().find(|(its, of, ..)| (&**its, &**of) == (id, name));
        kept.map(|(.., text)| text.clone())
    }

    fn put(&mut self, now: Instant, id: &str, name: &str, text: Bytes) {
        self.0.push_back((id.to_owned(), name.to_owned(), now, text));
        if self.0.len() > KEPT_MAX {
            self.0.pop_front();
        }
    }
}

impl Desk {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the route; none without a library, as for a record.
pub(super) fn routes(library: Option<Arc<dyn Library>>, board: &Arc<Board>) -> Router {
    let Some(library) = library else { return Router::new() };
    let desk = Desk {
        library,
        board: Arc::clone(board),
        free: Semaphore::new(REQUESTS_MAX),
        kept: Mutex::default(),
    };
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
    if about.is_none()
        && let Some(text) = desk.kept().get(Instant::now(), &id, &name)
    {
        return Ok(json(text));
    }
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
    let job = job_id(&id).map_err(|_| missing("there is no such job"))?;
    let made = desk.library.document(&job, &name, about.as_deref()).await;
    let made = made.map_err(|Failed { status, why }| Refusal(status, why))?;
    let text = Bytes::from(json!({ "format": made.format, "content": made.into_text() }).to_string());
    if about.is_none() {
        desk.kept().put(Instant::now(), &id, &name, text.clone());
    }
    Ok(json(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_kept_for_a_while_up_to_limit() {
        let (mut kept, begun) = (Kept::default(), Instant::now());
        kept.put(begun, "j-1", "graph.svg", Bytes::from("a"));
        let before = begun + (KEPT_FOR * 2 / 3);
        assert_eq!(kept.get(before, "j-1", "graph.svg").as_deref(), Some(&b"a"[..]));
        assert_eq!(kept.get(before, "j-2", "graph.svg"), None);
        assert_eq!(kept.get(begun + KEPT_FOR, "j-1", "graph.svg"), None);
        for number in 0..2 * KEPT_MAX {
            kept.put(begun, &format!("j-{number}"), "graph.svg", Bytes::new());
        }
        assert_eq!(kept.0.len(), KEPT_MAX);
    }
}
