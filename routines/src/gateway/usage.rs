//! The request for usage.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Gateway, openapi::Refused, problem::Problem};
use crate::service::Record;

/// The usage of routines by the tenant; with the role `operator`, by all tenants.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageOfRoutines {
    usage: Vec<Record>,
}

#[utoipa::path(
    get,
    path = "/v1/usage",
    responses((status = 200, body = UsageOfRoutines), Refused::<413>, Refused::<500>, Refused::<503>)
)]
pub(super) async fn usage(gateway: Gateway) -> Result<Response, Problem> {
    let usage = gateway.service.usage(gateway.is_of_operator).await?;
    Ok(Json(UsageOfRoutines { usage }).into_response())
}
