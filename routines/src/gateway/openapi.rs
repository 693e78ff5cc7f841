//! The OpenAPI document: the types of bodies that handlers read or write as text, and errors.

#![expect(dead_code, reason = "the fields of these types are only documented")]

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::Value;
use utoipa::{
    IntoResponses, PartialSchema as _, ToSchema,
    openapi::{
        ContentBuilder, Header, OpenApi, RefOr, Response, ResponseBuilder, SecurityRequirement,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::download::Form;
use crate::{
    reduction::Reduction,
    wire::{CallError, EntryKind},
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "routines", description = "Routines of a library, called once or in jobs on a cluster."),
    components(schemas(Refusal, Axes, Form))
)]
pub(super) struct Document;

/// A job of calls, or a search.
#[derive(ToSchema)]
pub(super) struct JobBody {
    /// NAME@VERSION, NAME for its latest version, or a digest.
    routine: String,
    /// The arguments of the calls.
    arguments: Option<Arguments>,
    /// Numbers to compute from the results of the calls, which are numbers then.
    #[schema(required = false)]
    reduce: Vec<Reduction>,
    /// Arguments: these numbers are computed for each group of calls with the same values of them.
    by: Option<By>,
    /// The argument of a search.
    argument: Option<Value>,
}

/// The name of an argument, its position, or a list of at most 8 of them.
#[derive(ToSchema)]
#[serde(untagged)]
enum By {
    One(Selector),
    Several(Vec<Selector>),
}

#[derive(ToSchema)]
#[serde(untagged)]
enum Selector {
    Name(String),
    Position(u64),
}

/// A point that is a list has positional arguments, an object named ones, and any other value is the only argument.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(no_recursion)]
enum Arguments {
    Values(Vec<Value>),
    List {
        list: Vec<Value>,
    },
    /// Integers from the first to the second, excluding that.
    Range {
        #[schema(min_items = 2, max_items = 2)]
        range: Vec<i64>,
    },
    /// All combinations of the points of the axes; the last axis changes fastest.
    Product {
        product: Axes,
    },
    /// The points of the axes with the same index.
    Zip {
        zip: Axes,
    },
    /// The lines of a resource, each a value.
    File {
        file: String,
    },
}

/// The points of positional axes are lists, and those of named axes objects.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(no_recursion)]
enum Axes {
    Positional(Vec<Arguments>),
    Named(BTreeMap<String, Arguments>),
}

#[derive(ToSchema)]
pub(super) struct CallBody {
    argument: Value,
}

/// The outcome of a call: a value or an error.
#[derive(ToSchema)]
pub(super) struct Outcome {
    /// The called version, in the answer to a direct call.
    routine: Option<String>,
    index: u64,
    #[schema(required = false)]
    value: Value,
    error: Option<CallError>,
}

/// A page of results of calls, or the result of a search.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum Results {
    Calls { count: u64, results: Vec<Outcome>, next: Option<u64> },
    Search { counts: BTreeMap<String, Value>, best: Option<Value> },
}

/// A Server-Sent Event: `state` or `end`, with the state of the job as JSON.
#[derive(ToSchema)]
pub(super) struct StateEvent {
    event: String,
    data: String,
}

/// A routine. Without parameters, arguments are not checked.
#[derive(ToSchema)]
pub(super) struct Signature {
    routine: String,
    digest: String,
    entry: String,
    kind: EntryKind,
    description: String,
    tags: Vec<String>,
    timeout: Option<f64>,
    reuse: Option<u64>,
    /// The time between two states of a call, in seconds.
    checkpoint: Option<f64>,
    idempotent: bool,
    /// Whether it combines a list of results to one.
    reducer: bool,
    /// The maximum memory of a process, in MiB.
    memory: Option<u64>,
    parameters: Option<Vec<Parameter>>,
    /// The JSON Schema of the result.
    result: Option<Value>,
}

#[derive(ToSchema)]
struct Parameter {
    name: String,
    /// A JSON Schema.
    schema: Value,
    required: bool,
    #[schema(required = false)]
    default: Value,
}

/// A resource: its BLAKE3 digest, and its size in bytes.
#[derive(ToSchema)]
pub(super) struct ResourceInfo {
    name: String,
    digest: String,
    bytes: u64,
}

/// The bytes of a resource.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(super) struct Content(Vec<u8>);

#[derive(ToSchema)]
pub(super) struct Resources {
    resources: Vec<ResourceInfo>,
}

/// An error, as in RFC 9457.
#[derive(ToSchema)]
#[schema(as = Problem)]
pub(super) struct Refusal {
    r#type: String,
    title: String,
    status: u16,
    /// The reason and the remedy.
    detail: String,
}

/// The answer with a problem of this status.
pub(super) struct Refused<const STATUS: u16>;

/// Adds tokens to a document: all paths but one may require one.
pub(super) fn add_access(document: &mut OpenApi, for_all: &str) {
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", scheme);
    let refused = Refused::<401>::responses().into_iter().chain(Refused::<403>::responses());
    let refused: Vec<_> = refused.collect();
    let paths = document.paths.paths.iter_mut().filter(|(path, _)| *path != for_all);
    for (_, item) in paths {
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in methods.into_iter().flatten() {
            operation.responses.responses.extend(refused.iter().cloned());
            // Without tokens, a gateway serves this machine only.
            let anonymous = SecurityRequirement::default();
            operation.security = Some(vec![SecurityRequirement::new("token", [""; 0]), anonymous]);
        }
    }
}

impl<const STATUS: u16> IntoResponses for Refused<STATUS> {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let code = StatusCode::from_u16(STATUS).ok();
        let content =
            ContentBuilder::new().schema(Some(utoipa::openapi::Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description(code.and_then(|code| code.canonical_reason()).unwrap_or_default())
            .content("application/problem+json", content);
        let is_temporary =
            [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].map(|it| it.as_u16());
        let response = if is_temporary.contains(&STATUS) {
            response.header("retry-after", Header::new(u64::schema()))
        } else {
            response
        };
        BTreeMap::from([(STATUS.to_string(), response.build().into())])
    }
}

#[cfg(test)]
mod tests {
    use super::super::documented;

    #[test]
    fn references_of_the_document_have_their_schemas() {
        let text = documented().1.to_json().unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let references =
            text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap());
        for name in references {
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
