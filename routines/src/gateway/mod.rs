//! The REST interface to jobs of routines.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/jobs {routine, arguments[, reduce[, by]]}` | 201 with the state of the new job; 200 if `Idempotency-Key` is that of a job |
//! | `POST /v1/jobs {routine, argument}` | 201 and the state of a search |
//! | `GET /v1/jobs/J[?wait=SECONDS]` | the state, after the end of the job or this time |
//! | `GET /v1/jobs/J/events` | the state as Server-Sent Events, when it changes and at the end of the job |
//! | `GET /v1/jobs/J/results[?from=INDEX&limit=N]` | a page of results, sorted by index |
//! | `GET /v1/jobs/J/results` with `Accept: application/x-ndjson` | all results from the index, one line each |
//! | `GET /v1/jobs/J/download[?format=csv]` | all results as a file: lines of JSON, or a table |
//! | `GET /v1/jobs/J/results` of a search | its result |
//! | `DELETE /v1/jobs/J` | the data that was removed |
//! | `POST /v1/jobs/J/cancel` | the state |
//! | `POST /v1/jobs/J/calls/I/cancel` | the state |
//! | `POST /v1/jobs/J/rerun` | 201 with the state of a new job of the failed calls; 200 if there is one |
//! | `POST /v1/routines/NAME[@VERSION]/call {argument}` | the result of one direct call |
//! | `GET /v1/routines[?q=WORDS&tag=TAG&cursor=CURSOR&limit=N]` | a page of routines, sorted by name and version |
//! | `GET /v1/routines/NAME@VERSION` | the digest and the signature |
//! | `PUT GET DELETE /v1/resources/NAME` | a resource, a file for calls |
//! | `GET /v1/resources` | the names, digests and sizes of all resources |
//! | `GET /v1/usage` | the usage of routines |
//! | `GET /v1/openapi.json` | the OpenAPI document |
//!
//! Errors are problems as in RFC 9457. A request with a body has the type `application/json`, which other sites cannot
//! send from a browser. Without TLS and [tokens](access), the server listens on this machine only.

mod access;
mod download;
mod events;
mod incoming;
mod openapi;
mod parts;
mod problem;
mod resources;
mod usage;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{
        DefaultBodyLimit, Path, Query,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use taskwork::JobId;
use taskwork_cli::{
    command::job_id,
    web::{
        guard::guard,
        server::{self, Deadline},
    },
};
use tokio::time;
use utoipa::{OpenApi as _, openapi::OpenApi};
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::access::{Entrance, Role, line};
use self::{
    incoming::BodyLimits,
    openapi::{CallBody, Document, JobBody, Outcome, Refused},
    problem::Problem,
};
use crate::{
    library,
    package::{Description, Package},
    request::{self, JobRequest},
    service::{Removed, Service, ServiceError, Status},
};

/// The maximum size of the body of a request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;

/// The default and the maximum number of results of a page, and the size at which it ends, in bytes.
const PAGE: usize = 1_000;
const PAGE_MAX: usize = 10_000;
const PAGE_BYTES: usize = 16 << 20;

/// The maximum time for which a request waits, in seconds.
const WAIT_SECONDS_MAX: u64 = 60;

/// The maximum length of an idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// The type of a stream of results.
const NDJSON: &str = "application/x-ndjson";

/// The shared state of request handlers.
#[derive(Debug, Clone)]
struct Gateway {
    service: Service,
    /// The OpenAPI document as JSON.
    document: Bytes,
    /// Whether the sender of the request may see the usage of all tenants.
    is_of_operator: bool,
}

/// Serves requests until the process exits.
pub(crate) async fn serve(entrance: Entrance, service: Service) -> Infallible {
    let Entrance { listener, tls, names, tokens } = entrance;
    let names = names.accepting(|method, path| match *method {
        Method::POST => path.starts_with("/v1/"),
        // From pages of other sites, browsers ask for permission first.
        Method::PUT | Method::DELETE => path.starts_with("/v1/resources/") || path.starts_with("/v1/jobs/"),
        _ => false,
    });
    let (router, document) = documented();
    let document = document.to_json().unwrap_or_default();
    let router = router
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is no such resource") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the resource does not support this method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Gateway { service, document: document.into(), is_of_operator: false })
        .layer(middleware::from_fn_with_state(tokens, access::admit))
        .layer(middleware::from_fn_with_state(Arc::new(names), guard))
        .layer(middleware::from_fn_with_state(BodyLimits::default(), incoming::bound));
    server::serve(listener, tls, TowerToHyperService::new(router)).await
}

/// Returns the routes with their document.
fn documented() -> (Router<Gateway>, OpenApi) {
    let (router, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(submit))
        .routes(routes!(status, remove))
        .routes(routes!(results))
        .routes(routes!(events::events))
        .routes(routes!(download::download))
        .routes(routes!(cancel))
        .routes(routes!(cancel_call))
        .routes(routes!(rerun))
        .routes(routes!(find))
        .routes(routes!(routine))
        .routes(routes!(call))
        .routes(routes!(resources::list))
        .routes(routes!(resources::get, resources::put, resources::delete))
        .routes(routes!(usage::usage))
        .routes(routes!(document))
        .routes(routes!(livez))
        .split_for_parts();
    openapi::add_access(&mut document, access::FOR_ALL);
    (router, document)
}

#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object), Refused::<413>))]
async fn document(gateway: Gateway) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], gateway.document).into_response()
}

#[utoipa::path(get, path = "/livez", responses((status = 200, body = String, content_type = "text/plain")))]
async fn livez() -> &'static str {
    "alive\n"
}

#[utoipa::path(
    post,
    path = "/v1/jobs",
    params(("idempotency-key" = Option<String>, Header, min_length = 1, max_length = 256)),
    request_body = JobBody,
    responses(
        (status = 201, body = Status, headers(("location" = String))),
        (status = 200, body = Status, headers(("location" = String)), description = "The job with this key."),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<413>, Refused::<415>, Refused::<422>, Refused::<429>,
        Refused::<500>, Refused::<503>,
    )
)]
async fn submit(
    gateway: Gateway,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    check_type(&headers)?;
    let body = body.map_err(|refused| Problem::new(refused.status(), refused.body_text()))?;
    let (routine, work) = JobRequest::parse(&body).map_err(ServiceError::Invalid)?;
    let key = headers.get("idempotency-key").map(|key| {
        let text = key.to_str().ok().filter(|text| (1..=KEY_BYTES_MAX).contains(&text.len()));
        text.ok_or_else(|| {
            ServiceError::Invalid("an Idempotency-Key has 1 to 256 visible characters".to_owned())
        })
    });
    let submitted = gateway.service.submit(&routine, work, key.transpose()?).await?;
    job(&gateway, submitted).await
}

/// Returns the state of a job, which may be new, with its place.
async fn job(gateway: &Gateway, (id, is_new): (JobId, bool)) -> Result<Response, Problem> {
    let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let place = HeaderValue::from_str(&format!("/v1/jobs/{id}"));
    let place = place.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((code, [(header::LOCATION, place)], Json(gateway.service.status(&id).await?)).into_response())
}

#[utoipa::path(
    post,
    path = "/v1/routines/{routine}/call",
    params(("routine" = String, Path)),
    request_body = CallBody,
    responses(
        (status = 200, body = Outcome),
        Refused::<400>, Refused::<404>, Refused::<413>, Refused::<415>, Refused::<429>, Refused::<500>, Refused::<503>,
    )
)]
async fn call(
    gateway: Gateway,
    routine: Result<Path<String>, PathRejection>,
    Extension(deadline): Extension<Deadline>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let Path(routine) = routine?;
    check_type(&headers)?;
    let body = body.map_err(|refused| Problem::new(refused.status(), refused.body_text()))?;
    let argument = request::single(&body).map_err(ServiceError::Invalid)?;
    let _lifted = Lifted::new(deadline);
    let installed = gateway.service.package(&routine, library::LATEST_AGE_MAX).await?;
    let outcome = gateway.service.call(&installed, argument).await?;
    // As in a job of one call, and the version.
    let head = format!("{{\"routine\":\"{}\",\"index\":0,", installed.package.name());
    let line = outcome.replacen('{', &head, 1);
    Ok(([(header::CONTENT_TYPE, "application/json")], line).into_response())
}

/// A lifted deadline of a connection: calls have their own limits.
struct Lifted(Deadline);

impl Lifted {
    fn new(deadline: Deadline) -> Self {
        deadline.lift();
        Self(deadline)
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// The parameters of a query for the state of a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    #[serde(default)]
    wait: u64,
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}",
    params(("job" = String, Path), ("wait" = Option<u64>, Query)),
    responses(
        (status = 200, body = Status),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<413>, Refused::<500>, Refused::<503>,
    )
)]
async fn status(
    gateway: Gateway,
    Extension(deadline): Extension<Deadline>,
    job: Result<Path<String>, PathRejection>,
    query: Result<Query<Wait>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path(job) = job?;
    let id = parse(&job)?;
    let Query(Wait { wait }) = query?;
    if wait > 0 {
        let _lifted = Lifted::new(deadline);
        let most = Duration::from_secs(wait.min(WAIT_SECONDS_MAX));
        if let Ok(ended) = time::timeout(most, gateway.service.wait(&id)).await {
            ended?;
        }
    }
    Ok(Json(gateway.service.status(&id).await?).into_response())
}

/// The parameters of a query for results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    from: u64,
    limit: Option<usize>,
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/results",
    params(("job" = String, Path), ("from" = Option<u64>, Query), ("limit" = Option<u64>, Query)),
    responses(
        (status = 200, content((openapi::Results = "application/json"), (Outcome = "application/x-ndjson"))),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<413>, Refused::<500>, Refused::<503>,
    )
)]
async fn results(
    gateway: Gateway,
    job: Result<Path<String>, PathRejection>,
    query: Result<Query<Page>, QueryRejection>,
    Extension(deadline): Extension<Deadline>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(job) = job?;
    let id = parse(&job)?;
    let Query(Page { from, limit }) = query?;
    if let Some(result) = gateway.service.search_result(&id).await? {
        return Ok(([(header::CONTENT_TYPE, "application/json")], result).into_response());
    }
    let results = gateway.service.results(&id).await?;
    let accepts_lines = headers.get(header::ACCEPT).is_some_and(|accept| accept == NDJSON);
    if accepts_lines {
        let body = parts::of_results(results, from, deadline);
        return Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response());
    }
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let count = results.len();
    let mut lines = Service::lines(&results, from, limit + 1, PAGE_BYTES).await?;
    // The line after the page is the first of the next one. A page of large results ends earlier.
    let next = if lines.len() > limit {
        lines.pop().map(|line| line.index)
    } else {
        lines.last().map(|line| line.index + 1).filter(|_| lines.len() < limit.min(count))
    };
    let next = next.map_or_else(|| "null".to_owned(), |next| next.to_string());
    let lines: Vec<String> = lines.into_iter().map(|line| line.json).collect();
    let text = format!("{{\"count\":{count},\"results\":[{}],\"next\":{next}}}", lines.join(","));
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/cancel",
    params(("job" = String, Path)),
    request_body(content = Option<serde_json::Value>),
    responses(
        (status = 200, body = Status),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<415>, Refused::<500>, Refused::<503>,
    )
)]
async fn cancel(
    gateway: Gateway,
    job: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(job) = job?;
    check_type(&headers)?;
    let id = parse(&job)?;
    gateway.service.cancel(&id, "cancelled by a request").await?;
    Ok(Json(gateway.service.status(&id).await?).into_response())
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/calls/{index}/cancel",
    params(("job" = String, Path), ("index" = u64, Path)),
    request_body(content = Option<serde_json::Value>),
    responses(
        (status = 200, body = Status),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<415>, Refused::<500>, Refused::<503>,
    )
)]
async fn cancel_call(
    gateway: Gateway,
    call: Result<Path<(String, u64)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path((job, index)) = call?;
    check_type(&headers)?;
    let id = parse(&job)?;
    gateway.service.cancel_call(&id, index).await?;
    Ok(Json(gateway.service.status(&id).await?).into_response())
}

#[utoipa::path(
    delete,
    path = "/v1/jobs/{job}",
    params(("job" = String, Path)),
    responses(
        (status = 200, body = Removed),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<500>, Refused::<503>,
    )
)]
async fn remove(gateway: Gateway, job: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let Path(job) = job?;
    Ok(Json(gateway.service.remove(&parse(&job)?).await?).into_response())
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/rerun",
    params(("job" = String, Path)),
    request_body(content = Option<serde_json::Value>),
    responses(
        (status = 201, body = Status, headers(("location" = String))),
        (status = 200, body = Status, headers(("location" = String)), description = "The existing job."),
        Refused::<429>,
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<415>, Refused::<500>, Refused::<503>,
    )
)]
async fn rerun(
    gateway: Gateway,
    job: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Path(of) = job?;
    check_type(&headers)?;
    let submitted = gateway.service.rerun(&parse(&of)?).await?;
    self::job(&gateway, submitted).await
}

/// The parameters of a query for routines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Find {
    #[serde(default)]
    q: String,
    tag: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

#[utoipa::path(
    get,
    path = "/v1/routines",
    params(
        ("q" = Option<String>, Query, description = "Words that are in the name, the text or the tags."),
        ("tag" = Option<String>, Query),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page."),
        ("limit" = Option<u64>, Query),
    ),
    responses((status = 200, body = library::Page), Refused::<400>, Refused::<413>, Refused::<500>)
)]
async fn find(gateway: Gateway, query: Result<Query<Find>, QueryRejection>) -> Result<Response, Problem> {
    let Query(Find { q, tag, cursor, limit }) = query?;
    let page = gateway.service.find(library::Query { text: q, tag, cursor, limit }).await?;
    Ok(Json(page).into_response())
}

#[utoipa::path(
    get,
    path = "/v1/routines/{routine}",
    params(("routine" = String, Path)),
    responses(
        (status = 200, body = openapi::Signature),
        Refused::<400>, Refused::<404>, Refused::<413>, Refused::<500>,
    )
)]
async fn routine(
    gateway: Gateway,
    routine: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(routine) = routine?;
    let installed = gateway.service.package(&routine, Duration::ZERO).await?;
    let Package { digest, description, .. } = &installed.package;
    Ok(Json(Signature { routine: installed.package.name(), digest, description }).into_response())
}

/// A routine with the part of its description that its users need.
#[derive(Serialize)]
struct Signature<'a> {
    routine: String,
    digest: &'a str,
    #[serde(flatten)]
    description: &'a Description,
}

fn parse(job: &str) -> Result<JobId, Problem> {
    job_id(job)
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, format!("there is no job {job:?}: {error}")))
}

/// Refuses a request that a page of another site could send.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json"))
}
