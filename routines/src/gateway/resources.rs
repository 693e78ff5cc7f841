//! Requests about resources. Contents are streams, which are never held in memory as a whole.

use std::{future::poll_fn, io::Read as _, pin::Pin};

use axum::{
    Extension, Json,
    body::{Body, Bytes, HttpBody as _},
    extract::{Path, rejection::PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use taskwork_cli::web::server::Deadline;
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    Gateway, Lifted,
    incoming::Stalled,
    openapi::{Content, Refused, ResourceInfo, Resources},
    parts,
    problem::Problem,
};
use crate::{resource::Resource, service::ServiceError, store::Store};

/// The maximum size of a part of an answer, in bytes.
const PART_BYTES: usize = 256 << 10;

/// The number of parts of a body that wait to be written.
const WAITING_MAX: usize = 4;

#[utoipa::path(
    put,
    path = "/v1/resources/{name}",
    params(("name" = String, Path)),
    request_body(content = Content, content_type = "application/octet-stream"),
    responses(
        (status = 200, body = ResourceInfo),
        Refused::<400>, Refused::<404>, Refused::<408>, Refused::<413>, Refused::<429>, Refused::<500>,
    )
)]
pub(super) async fn put(
    gateway: Gateway,
    name: Result<Path<String>, PathRejection>,
    Extension(deadline): Extension<Deadline>,
    body: Body,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let _lifted = Lifted::new(deadline);
    let left = gateway.service.resource_bytes_left().await?;
    let written = receive(gateway.service.store(), &name, left, body).await?;
    Ok(Json(shown(&written)).into_response())
}

/// Writes a body into a resource, of at most so many bytes if there is a quota.
pub(super) async fn receive(
    store: &Store,
    name: &str,
    left: Option<u64>,
    mut body: Body,
) -> Result<Resource, Problem> {
    // Before the first part is requested from the client.
    let mut draft = store.put_resource(name).map_err(ServiceError::from)?.limit(left);
    let (parts, mut waiting) = mpsc::channel::<Bytes>(WAITING_MAX);
    let (whole, is_whole) = tokio::sync::oneshot::channel();
    let writing = spawn_blocking(move || {
        while let Some(part) = waiting.blocking_recv() {
            draft.write(&part)?;
        }
        // If the client is gone, the rest of the content is missing.
        is_whole.blocking_recv().ok().map(|()| draft.finish()).transpose()
    });
    loop {
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            Some(Ok(frame)) => {
                if let Ok(part) = frame.into_data()
                    && parts.send(part).await.is_err()
                {
                    // It was refused, for the reason below.
                    break;
                }
            }
            Some(Err(error)) => {
                let error = error.into_inner();
                let is_stalled = error.is::<Stalled>();
                let status = if is_stalled { StatusCode::REQUEST_TIMEOUT } else { StatusCode::BAD_REQUEST };
                return Err(Problem::new(status, error.to_string()));
            }
            None => {
                // The writer may have failed.
                let _ = whole.send(());
                break;
            }
        }
    }
    drop(parts);
    let written =
        writing.await.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let written = written.map_err(ServiceError::from)?;
    written.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "the body is incomplete"))
}

#[utoipa::path(
    get,
    path = "/v1/resources/{name}",
    params(("name" = String, Path)),
    responses(
        (status = 200, body = Content, content_type = "application/octet-stream"),
        Refused::<400>, Refused::<404>, Refused::<413>, Refused::<500>,
    )
)]
pub(super) async fn get(
    gateway: Gateway,
    name: Result<Path<String>, PathRejection>,
    Extension(deadline): Extension<Deadline>,
) -> Result<Response, Problem> {
    let Path(name) = name?;
    let content = gateway.service.with_store(move |store| store.resource_content(&store.resource(&name)?));
    let (mut content, bytes) = content.await?;
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    let body = parts::body(deadline, move || {
        let mut part = vec![0; PART_BYTES];
        let bytes = content.read(&mut part)?;
        part.truncate(bytes);
        Ok(part.into())
    });
    Ok((head, body).into_response())
}

#[utoipa::path(
    delete,
    path = "/v1/resources/{name}",
    params(("name" = String, Path)),
    responses((status = 204), Refused::<400>, Refused::<404>, Refused::<413>, Refused::<500>)
)]
pub(super) async fn delete(
    gateway: Gateway,
    name: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let Path(name) = name?;
    gateway.service.with_store(move |store| store.delete_resource(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    get,
    path = "/v1/resources",
    responses((status = 200, body = Resources), Refused::<413>, Refused::<500>)
)]
pub(super) async fn list(gateway: Gateway) -> Result<Response, Problem> {
    let resources = gateway.service.with_store(Store::resources).await?;
    let shown: Vec<_> = resources.iter().map(shown).collect();
    Ok(Json(json!({ "resources": shown })).into_response())
}

fn shown(resource: &Resource) -> Value {
    json!({ "name": resource.name, "digest": resource.digest, "bytes": resource.bytes })
}
