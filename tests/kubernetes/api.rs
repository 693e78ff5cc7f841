//! The API of the small Kubernetes over HTTP on loopback, as `kubectl proxy` serves it, in its own thread.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;

use crate::world::{Answer, World, status};

/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "search";

/// Serves until the process exits, and returns the address.
pub(crate) fn serve(world: Arc<Mutex<World>>) -> String {
    let (told, address) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(format!("http://{}", listener.local_addr().unwrap())).unwrap();
            axum::serve(listener, Router::new().fallback(handle).with_state(world)).await.unwrap();
        });
    });
    address.recv().unwrap()
}

async fn handle(State(world): State<Arc<Mutex<World>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let body: Value =
        if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap_or(Value::Null) };
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let query = head.uri.query().unwrap_or_default();
    let mut world = world.lock().unwrap();
    let (code, body) = answer(&mut world, &head.method, head.uri.path(), query, kind, &body);
    let code = StatusCode::from_u16(code).unwrap();
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (code, json, body.to_string()).into_response()
}

fn answer(
    world: &mut World,
    method: &Method,
    path: &str,
    query: &str,
    kind: Option<&str>,
    body: &Value,
) -> Answer {
    if world.faults.errors > 0 {
        world.faults.errors -= 1;
        return status(500, "etcdserver: request timed out");
    }
    if *method == Method::PATCH && kind != Some("application/merge-patch+json") {
        return status(415, "the body of the request was in an unknown format");
    }
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match (method.as_str(), &words[..]) {
        ("GET", ["apis", "apps", "v1", "namespaces", NAMESPACE, "deployments", name]) => {
            world.deployment(name)
        }
        ("PATCH", ["apis", "apps", "v1", "namespaces", NAMESPACE, "deployments", name]) => {
            world.patch_deployment(name, body)
        }
        ("GET", ["api", "v1", "namespaces", NAMESPACE, "pods"]) => {
            let pairs: Vec<(String, String)> =
                form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            let value = |name: &str| {
                pairs.iter().find(|(its, _)| its == name).map_or("", |(_, value)| value.as_str())
            };
            let app = value("labelSelector").strip_prefix("app=").unwrap_or_default();
            world.pods(app, value("limit").parse().unwrap_or(usize::MAX - 1), value("continue"))
        }
        ("PATCH", ["api", "v1", "namespaces", NAMESPACE, "pods", name]) => world.patch_pod(name, body),
        ("DELETE", ["api", "v1", "namespaces", NAMESPACE, "pods", name]) => {
            world.delete_pod(name, body["preconditions"]["uid"].as_str())
        }
        _ => status(404, "the server could not find the requested resource"),
    }
}
