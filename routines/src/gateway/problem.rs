//! Errors of requests, as in RFC 9457.

use axum::{
    extract::rejection::{PathRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use taskwork::client::ErrorKind;

use crate::{resource::ResourceError, service::ServiceError, store::StoreError, table::TableError};

/// The time after which a client repeats a request, in seconds.
const RETRY_AFTER: &str = "1";

/// An error of a request.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
    /// Whether the same request may succeed later.
    is_temporary: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), is_temporary: false }
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        let (status, is_temporary) = match &error {
            ServiceError::Invalid(_)
            | ServiceError::Table(TableError::NotFlat { .. })
            | ServiceError::Store(StoreError::Name { .. })
            | ServiceError::Resource(ResourceError::Name(_) | ResourceError::NotText(..)) => {
                (StatusCode::BAD_REQUEST, false)
            }
            ServiceError::NoJob(_)
            | ServiceError::NoCall { .. }
            | ServiceError::Resource(ResourceError::Missing(_))
            | ServiceError::Store(StoreError::Missing { .. }) => (StatusCode::NOT_FOUND, false),
            ServiceError::Resource(ResourceError::TooLarge | ResourceError::LongList(_)) => {
                (StatusCode::PAYLOAD_TOO_LARGE, false)
            }
            ServiceError::Quota(_) | ServiceError::Resource(ResourceError::Quota) => {
                (StatusCode::TOO_MANY_REQUESTS, true)
            }
            ServiceError::NotOver { .. } | ServiceError::Runs { .. } => (StatusCode::CONFLICT, true),
            ServiceError::NoResults { .. } | ServiceError::NoFailures(_) | ServiceError::Over { .. } => {
                (StatusCode::CONFLICT, false)
            }
            ServiceError::Busy | ServiceError::NoNode => (StatusCode::SERVICE_UNAVAILABLE, true),
            ServiceError::KeyTaken(_) => (StatusCode::UNPROCESSABLE_ENTITY, false),
            ServiceError::Store(_)
            | ServiceError::Resource(_)
            | ServiceError::Results(_)
            | ServiceError::Table(_)
            | ServiceError::Unserved(_) => (StatusCode::INTERNAL_SERVER_ERROR, false),
            ServiceError::Client(error) => match error.kind() {
                ErrorKind::Usage => (StatusCode::BAD_REQUEST, false),
                ErrorKind::NotFound => (StatusCode::NOT_FOUND, false),
                ErrorKind::Failed => (StatusCode::CONFLICT, false),
                _ => (StatusCode::SERVICE_UNAVAILABLE, true),
            },
        };
        Self { status, detail: error.to_string(), is_temporary }
    }
}

impl From<QueryRejection> for Problem {
    fn from(error: QueryRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(error: PathRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, detail, is_temporary } = self;
        let body = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": detail,
        });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body.to_string()).into_response();
        if is_temporary {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_lists_of_arguments_are_errors_of_the_client() {
        let text = String::from_utf8(vec![0xff]).unwrap_err();
        for (error, status) in [
            (ResourceError::NotText("image".to_owned(), text), StatusCode::BAD_REQUEST),
            (ResourceError::LongList("list".to_owned()), StatusCode::PAYLOAD_TOO_LARGE),
        ] {
            assert_eq!(Problem::from(ServiceError::from(error)).status, status);
        }
    }
}
