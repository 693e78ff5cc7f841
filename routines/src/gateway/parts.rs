//! Bodies of answers that are read from the store in parts.

use std::{error::Error, sync::Arc};

use axum::body::{Body, Bytes};
use futures_util::stream::try_unfold;
use taskwork_cli::web::server::Deadline;
use tokio::task::spawn_blocking;

use crate::{
    store::{Line, Results, ResultsError},
    table::Table,
};

/// The size of a part with results, in bytes, and its maximum number of results.
const RESULTS_BYTES: usize = 256 << 10;
const RESULTS_MAX: usize = 10_000;

type Failure = Box<dyn Error + Send + Sync>;

/// A connection without its deadline until this is dropped: a large body may exceed it.
struct Lifted(Deadline);

impl Drop for Lifted {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// Creates a body of parts, which are read on threads that may block. An empty part ends it.
pub(super) fn body(
    deadline: Deadline,
    next: impl FnMut() -> Result<Bytes, Failure> + Send + 'static,
) -> Body {
    deadline.lift();
    Body::from_stream(try_unfold((Lifted(deadline), next), async |(lifted, mut next)| {
        let (part, next) = spawn_blocking(move || (next(), next)).await?;
        let part = part?;
        Ok::<_, Failure>((!part.is_empty()).then_some((part, (lifted, next))))
    }))
}

/// Creates the body of all results from an index: one line for each.
pub(super) fn of_results(results: Arc<Results>, from: u64, deadline: Deadline) -> Body {
    of_lines(results, from, deadline, String::new(), |Line { mut json, .. }| {
        json.push('\n');
        json
    })
}

/// Creates the body of all results as a table.
pub(super) fn of_table(results: Arc<Results>, table: Table, deadline: Deadline) -> Body {
    of_lines(results, 0, deadline, table.head(), move |line| table.row(&line))
}

/// Creates the body of a head, and a text for each result.
fn of_lines(
    results: Arc<Results>,
    from: u64,
    deadline: Deadline,
    head: String,
    text: impl Fn(Line) -> String + Send + 'static,
) -> Body {
    let (mut next, mut part) = (Some(from), head);
    body(deadline, move || {
        if let Some(from) = next {
            let lines = results.lines(from, RESULTS_MAX, RESULTS_BYTES).map_err(Box::<ResultsError>::from)?;
            next = lines.last().and_then(|line| line.index.checked_add(1));
            part.extend(lines.into_iter().map(&text));
        }
        Ok(std::mem::take(&mut part).into())
    })
}
