//! Bodies of requests: the wait for each part is bounded, and the rest of a body that is not read is discarded.
//!
//! A client that sends a body reads the answer afterwards. If the connection closed before the end of the body, the
//! client would see a reset instead of the answer.

use std::{
    error::Error,
    future::{Future as _, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::Response,
};
use hyper::body::Frame;
use thiserror::Error;
use tokio::{
    runtime::Handle,
    time::{self, Instant, Sleep},
};

/// The limits of bodies.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits {
    /// The maximum wait for the next part.
    pub(super) stall_after: Duration,
    /// The maximum size of a discarded rest, in bytes.
    pub(super) rest_bytes_max: usize,
    /// The maximum time in which a rest is discarded.
    pub(super) rest_within: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        let (stall_after, rest_within) = (Duration::from_secs(30), Duration::from_secs(60));
        Self { stall_after, rest_bytes_max: 1 << 30, rest_within }
    }
}

/// The client sends nothing although its body is incomplete.
#[derive(Debug, Error)]
#[error("the body is incomplete, and nothing was received for {} s: send the request again", .0.as_secs_f64())]
pub(super) struct Stalled(Duration);

/// Passes a request on with a bounded body.
pub(super) async fn bound(State(limits): State<BodyLimits>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let waits = head.headers.contains_key(header::EXPECT);
    let (stall, is_waiting) = (Box::pin(time::sleep(limits.stall_after)), false);
    let body = Incoming { body: Some(body), waits, stall, is_waiting, limits };
    next.run(Request::from_parts(head, Body::new(body))).await
}

struct Incoming {
    /// `None` after its end.
    body: Option<Body>,
    /// Whether the client sends the body only after a request for it (`Expect: 100-continue`), which reading it makes.
    waits: bool,
    stall: Pin<Box<Sleep>>,
    is_waiting: bool,
    limits: BodyLimits,
}

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.waits = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
            let most = self.limits.stall_after;
            if !self.is_waiting {
                self.is_waiting = true;
                self.stall.as_mut().reset(Instant::now() + most);
            }
            if self.stall.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.body = None;
            return Poll::Ready(Some(Err(Stalled(most).into())));
        };
        self.is_waiting = false;
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !self.waits && !body.is_end_stream());
        let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) else { return };
        runtime.spawn(time::timeout(self.limits.rest_within, discard(rest, self.limits.rest_bytes_max)));
    }
}

/// Reads a body up to its end or a size.
async fn discard(mut body: Body, mut bytes_max: usize) {
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Some(left) = bytes_max.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        bytes_max = left;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{Router, extract::Path, http::StatusCode, middleware, routing::put};
    use hyper_util::service::TowerToHyperService;
    use taskwork_cli::web::server;
    use tempfile::{TempDir, tempdir};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;
    use crate::{gateway::resources::receive, store::Store};

    const WAIT_MAX: Duration = Duration::from_secs(20);

    /// Serves uploads.
    fn start(limits: BodyLimits) -> (TempDir, Store, SocketAddr) {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let its = store.clone();
        let upload = async move |Path(name): Path<String>, body: Body| {
            receive(&its, &name, None, body).await.map(|_| StatusCode::OK)
        };
        let router = Router::new().route("/{name}", put(upload));
        let router = router.layer(middleware::from_fn_with_state(limits, bound));
        let listener = server::listen_here("--listen", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server::serve(listener, None, TowerToHyperService::new(router)));
        (folder, store, address)
    }

    /// Sends a request, then reads the whole answer.
    async fn ask(address: SocketAddr, name: &str, head: &str, length: usize, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "PUT /{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n{head}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut answer = String::new();
        time::timeout(WAIT_MAX, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn refused_upload_is_answered_after_its_body_was_sent() {
        let (_folder, _, address) = start(BodyLimits::default());
        let body = vec![0; 8 << 20];
        for _ in 0..5 {
            let answer = ask(address, "-wrong", "", body.len(), &body).await;
            assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("-wrong"), "{answer}");
        }
        let answer = ask(address, "-wrong", "Expect: 100-continue\r\n", body.len(), b"").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "the body is not requested: {answer}");
    }

    #[tokio::test]
    async fn stalled_upload_is_refused_and_leaves_no_resource() {
        let limits = BodyLimits { stall_after: Duration::from_millis(50), ..BodyLimits::default() };
        let (_folder, store, address) = start(limits);
        let answer = ask(address, "table", "", 5, b"part").await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("0.05 s"), "{answer}");
        let answer = ask(address, "other", "", 4, b"part").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let names: Vec<_> = store.resources().unwrap().into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["other"]);
    }
}
