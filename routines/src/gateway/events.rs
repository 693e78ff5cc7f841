//! The counts of a job as Server-Sent Events, while it runs.

use std::{error::Error, time::Duration};

use axum::{
    Extension,
    extract::{Path, rejection::PathRejection},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream::try_unfold;
use taskwork_cli::web::server::Deadline;
use tokio::time;

use super::{
    Gateway, Lifted,
    openapi::{Refused, StateEvent},
    parse,
    problem::Problem,
};

/// The time between two events.
const EVERY: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error + Send + Sync>;

/// Each event has the state, when it has changed. That of the job that is over is an `end`, and the last one; a client that
/// reconnects, with any `Last-Event-ID`, receives the present state.
#[utoipa::path(
    get,
    path = "/v1/jobs/{job}/events",
    params(("job" = String, Path)),
    responses(
        (status = 200, body = StateEvent, content_type = "text/event-stream"),
        Refused::<400>, Refused::<404>, Refused::<409>, Refused::<413>, Refused::<500>, Refused::<503>,
    )
)]
pub(super) async fn events(
    gateway: Gateway,
    Extension(deadline): Extension<Deadline>,
    job: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let Path(job) = job?;
    let id = parse(&job)?;
    gateway.service.status(&id).await?;
    let start = (Some(String::new()), gateway.service, id, Lifted::new(deadline));
    let states = try_unfold(start, async |(last, service, id, lifted)| {
        let Some(last) = last else { return Ok(None) };
        loop {
            if !last.is_empty()
                && let Ok(ended) = time::timeout(EVERY, service.wait(&id)).await
            {
                ended?;
            }
            let status = service.status(&id).await?;
            let data = serde_json::to_string(&status)?;
            if data != last {
                let (name, next) =
                    if status.is_over() { ("end", None) } else { ("state", Some(data.clone())) };
                let event = Event::default().event(name).data(data);
                return Ok::<_, Failure>(Some((event, (next, service, id, lifted))));
            }
        }
    });
    Ok(Sse::new(states).keep_alive(KeepAlive::default()).into_response())
}
