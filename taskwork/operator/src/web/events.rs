//! The stream of changes to a browser, as the body of an answer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::body::Frame;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    time::{self, Instant, Sleep},
};

use super::{dashboard::Served, guard::Refusal, server::Deadline, topics::Query};

/// The maximum number of streams.
pub(super) const STREAMS_MAX: usize = 64;
/// The time without events after which a heartbeat is sent, so that both sides detect a broken connection.
const SILENCE: Duration = Duration::from_secs(10);

/// The body.
struct Events {
    from: mpsc::Receiver<Bytes>,
    silence: Pin<Box<Sleep>>,
    deadline: Deadline,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let message = match self.from.poll_recv(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(message)) => message,
            Poll::Pending => {
                std::task::ready!(self.silence.as_mut().poll(context));
                Bytes::from_static(b":\n\n")
            }
        };
        self.silence.as_mut().reset(Instant::now() + SILENCE);
        Poll::Ready(Some(Ok(Frame::data(message))))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.deadline.restore();
    }
}

/// Serves a stream.
pub(super) async fn follow(
    State(served): State<Served>,
    Extension(deadline): Extension<Deadline>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = Query::of(query.as_deref().unwrap_or_default());
    let Query { topics, since } = query.map_err(|what| Refusal(StatusCode::BAD_REQUEST, what))?;
    // An id that is no number comes from another server: the complete view is sent.
    let last = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse().ok()));
    let Ok(place) = Arc::clone(&served.streams).try_acquire_owned() else {
        let what = format!("{STREAMS_MAX} browsers follow this already; close one, or try again later");
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    deadline.lift();
    let from = served.board.follow(topics, last.unwrap_or(since), deadline.clone());
    let silence = Box::pin(time::sleep(SILENCE));
    let body = Body::new(Events { from, silence, deadline, _place: place });
    let about = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // A proxy must not buffer the stream.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((about, body).into_response())
}
