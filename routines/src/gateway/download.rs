//! All results of a job as one file.

use axum::{
    Extension,
    extract::{
        Path, Query,
        rejection::{PathRejection, QueryRejection},
    },
    http::header,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use taskwork_cli::web::server::Deadline;
use utoipa::ToSchema;

use super::{
    Gateway, NDJSON,
    openapi::{Outcome, Refused},
    parse, parts,
    problem::Problem,
};

/// The form of the file: a line of JSON for each result, or a table of scalars or flat objects.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    #[default]
    Ndjson,
    Csv,
}

/// The parameters of a query for a download.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Download {
    #[serde(default)]
    format: Form,
}

#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/download",
    params(("job" = String, Path), ("format" = Option<Form>, Query)),
    responses(
        (status = 200, content((Outcome = "application/x-ndjson"), (String = "text/csv"))),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<413>, Refused::<500>, Refused::<503>,
    )
)]
pub(super) async fn download(
    gateway: Gateway,
    job: Result<Path<String>, PathRejection>,
    query: Result<Query<Download>, QueryRejection>,
    Extension(deadline): Extension<Deadline>,
) -> Result<Response, Problem> {
    let Path(job) = job?;
    let id = parse(&job)?;
    let Query(Download { format }) = query?;
    let results = gateway.service.results(&id).await?;
    let (kind, end, body) = match format {
        Form::Ndjson => (NDJSON, "ndjson", parts::of_results(results, 0, deadline)),
        Form::Csv => {
            let table = gateway.service.table(&results).await?;
            ("text/csv", "csv", parts::of_table(results, table, deadline))
        }
    };
    let name = format!("attachment; filename=\"{id}.{end}\"");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &*name)], body).into_response())
}
