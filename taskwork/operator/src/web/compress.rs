//! Compression of pages and event streams for clients that accept it; streams are flushed after each message.

use std::{
    io::Write as _,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use flate2::{Compression, write::GzEncoder};
use hyper::body::{Body as _, Frame};

/// The size below which an answer is not compressed, in bytes: it fits into one packet.
const PLAIN_BYTES_MAX: u64 = 1_024;

/// Compresses an answer if the client accepts it. The answer must contain no secret: its size could reveal it.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let accepts = accepts_gzip(request.headers());
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let is_small = answer.body().size_hint().exact().is_some_and(|bytes| bytes < PLAIN_BYTES_MAX);
    if !accepts || is_small || answer.status() != StatusCode::OK {
        return answer;
    }
    let headers = answer.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    answer.map(|body| {
        Body::new(Compressed { body, encoder: Some(GzEncoder::new(Vec::new(), Compression::default())) })
    })
}

/// Returns whether a request accepts a compressed answer.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        // A weight of 0 excludes the encoding.
        let is_refused =
            parts.filter_map(|part| part.strip_prefix("q=")).any(|weight| weight.parse() == Ok(0.0));
        is_it && !is_refused
    })
}

/// A compressed body. Each chunk is flushed, so that a message of a stream is not delayed until the next.
struct Compressed {
    body: Body,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl hyper::body::Body for Compressed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                let rest = self.encoder.take().map(GzEncoder::finish);
                return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest.map_err(axum::Error::new)?.into()))));
            };
            let Ok(data) = frame?.into_data() else { continue };
            let Some(encoder) = &mut self.encoder else { continue };
            encoder.write_all(&data).and_then(|()| encoder.flush()).map_err(axum::Error::new)?;
            let compressed = mem::take(encoder.get_mut());
            if !compressed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(compressed.into()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_if_request_accepts_it() {
        let accepts = |values: &[&'static str]| {
            let values =
                values.iter().map(|value| (header::ACCEPT_ENCODING, HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            values.for_each(|(name, value)| _ = headers.append(name, value));
            accepts_gzip(&headers)
        };
        for yes in [&["gzip"][..], &["deflate, GZIP;q=0.5, br"], &["br", "gzip"], &["gzip; q=1"]] {
            assert!(accepts(yes), "{yes:?}");
        }
        for no in
            [&[][..], &[""], &["identity"], &["gzip;q=0"], &["gzip; q=0.000, br"], &["xgzip"], &["br;gzip"]]
        {
            assert!(!accepts(no), "{no:?}");
        }
    }
}
