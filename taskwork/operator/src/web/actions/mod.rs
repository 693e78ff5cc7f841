//! Actions of operators on the pages: suspend, resume and cancel jobs, ask nodes to leave, send suggestions to jobs.
//! Disabled unless the dashboard was started with `--allow-actions`.
//!
//! | path | answer |
//! |---|---|
//! | `GET /api/operator` | whether actions are allowed, and the name of the signed-in operator |
//! | `POST /api/operator/sign-in`, `…/sign-out` | creates or deletes a cookie and a session for an operator's token |
//! | `POST /api/operator/suspend`, `resume`, `cancel`, `drain`, `inject` | the result |
//!
//! ```text
//! request ─▶ size, kind, header, origin ─▶ operator ─▶ session ─▶ body ─▶ action ─▶ client
//!            pages of other sites          token,       one at                └─▶ a line in the log
//!            cannot send such a request    cookie       a time
//! ```
//!
//! A page of another site, also of another port of this machine, can make a browser send requests here with its
//! cookies. Four measures prevent that. Each request has a JSON body and a custom header, for which a browser first
//! asks permission, and is refused. The browser must report a page of this site as the origin. The cookie is not sent
//! with requests of other sites. Other ports of this machine receive the cookie, so a page also sends its session in
//! a header. Except for a token, a body is read only after the operator was authenticated.

mod action;
mod operators;
mod sessions;

use std::{
    collections::VecDeque,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::{self, Body, Bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::json;
use taskwork_cli::web::token::text;
use tokio::{sync::oneshot, time};

pub(super) use self::{action::Action, operators::Operators};
use self::{
    action::{ByClient, asked_before},
    operators::{Operator, SignedIn},
    sessions::{Busy, Sessions},
};
use super::{
    access::now_s,
    board::Board,
    guard::{ACTIONS, Names, Refusal},
    server::Peer,
};

/// The header required in each request. A browser cannot send it for a page of another site.
const HEADER: &str = "x-taskwork-action";
/// The maximum size of a body with a token, in bytes.
const TOKEN_BYTES_MAX: usize = 4 << 10;
/// The maximum time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time of an action; requests to ZooKeeper time out earlier.
const ACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of remembered nodes that were asked to leave.
const LEAVING_MAX: usize = 1_000;
/// The maximum length of a logged header, in characters.
const LOGGED_CHARS_MAX: usize = 100;

/// The error of an action that was not done, or may not have been.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

/// The result of an action: a message for the operator.
pub(super) type Outcome = Result<String, Failed>;

/// Performs actions.
pub(super) trait Actor: Send + Sync {
    /// Performs an action, in a bounded time.
    fn perform<'a>(&'a self, action: &'a Action) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
}

/// Returns an actor that uses a client.
pub(super) fn by_client(client: &taskwork::Client) -> Arc<dyn Actor> {
    Arc::new(ByClient::new(client))
}

/// The state for requests of operators.
pub(super) struct Actions {
    operators: Arc<Operators>,
    actor: Arc<dyn Actor>,
    board: Arc<Board>,
    names: Arc<Names>,
    /// Whether this process terminates TLS.
    has_tls: bool,
    sessions: Sessions,
    /// Nodes that were asked to leave here: no second request is sent.
    leaving: Mutex<VecDeque<String>>,
}

impl Actions {
    pub(super) fn new(
        operators: Arc<Operators>,
        actor: Arc<dyn Actor>,
        board: Arc<Board>,
        names: Arc<Names>,
        has_tls: bool,
    ) -> Self {
        let (sessions, leaving) = (Sessions::default(), Mutex::default());
        Self { operators, actor, board, names, has_tls, sessions, leaving }
    }

    /// Checks the properties that every request must have, before authentication.
    fn check(&self, headers: &HeaderMap, bytes_max: usize) -> Result<(), Refusal> {
        let length = text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        if length.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let what = "an action is JSON: send it with the content type application/json";
            return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, what.to_owned()));
        }
        if text(headers, HEADER) != Some("1") {
            return Err(forbidden(format!("an action has the header {HEADER}: 1")));
        }
        let is_same_origin = text(headers, "sec-fetch-site").is_none_or(|site| site == "same-origin");
        let comes_from = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        if !is_same_origin || comes_from.is_some_and(|origin| !self.is_site(origin, headers)) {
            return Err(forbidden("it was sent by a page of another site".to_owned()));
        }
        Ok(())
    }

    /// Returns whether an origin is this site: the requested host with its port, or a name given on the command line,
    /// as used through a proxy.
    fn is_site(&self, origin: &str, headers: &HeaderMap) -> bool {
        let host = match origin.split_once("://") {
            Some(("https", host)) => host,
            Some(("http", host)) if !self.has_tls => host,
            _ => return false,
        };
        let asked = text(headers, header::HOST).unwrap_or_default();
        host.eq_ignore_ascii_case(asked) || self.names.were_given(host)
    }

    /// Records that a node will be asked to leave.
    ///
    /// # Errors
    /// If it was asked before.
    fn note_leaving(&self, action: &Action) -> Result<(), Refusal> {
        let Some(node) = action.drained() else { return Ok(()) };
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        if leaving.contains(&node) || self.board.is_draining(&node) {
            let Failed { status, why } = asked_before(&node);
            return Err(Refusal(status, why));
        }
        if leaving.len() >= LEAVING_MAX {
            leaving.pop_front();
        }
        leaving.push_back(node);
        Ok(())
    }

    /// Records that a node may not have been asked. If it was, the next request detects that, and has no effect.
    fn forget_leaving(&self, action: &Action) {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|node| Some(node) != action.drained().as_ref());
    }
}

/// The sender of a request, for the log.
#[derive(Debug, Clone)]
struct Asker {
    operator: String,
    from: IpAddr,
    /// The origin according to a proxy; not authenticated.
    forwarded_for: String,
}

impl Asker {
    fn of(operator: &str, from: IpAddr, headers: &HeaderMap) -> Self {
        let forwarded = text(headers, "x-forwarded-for").unwrap_or_default();
        let forwarded_for = forwarded.chars().take(LOGGED_CHARS_MAX).collect();
        Self { operator: operator.to_owned(), from, forwarded_for }
    }

    /// Logs at a level that is enabled by default.
    fn log(&self, action: &str, on: &str, result: &str) {
        let Self { operator, from, forwarded_for } = self;
        tracing::warn!(?operator, %from, ?forwarded_for, action, on, ?result, "operator's action");
    }
}

/// Returns the routes of actions; if there are none, routes that refuse with an explanation.
pub(super) fn routes(actions: Option<Arc<Actions>>) -> Router {
    let of_action = format!("{ACTIONS}/{{what}}");
    match actions {
        Some(actions) => {
            Router::new().route(ACTIONS, get(state)).route(&of_action, post(answer)).with_state(actions)
        }
        None => Router::new()
            .route(ACTIONS, get(|| async { json_of(&json!({ "allowed": false })) }))
            .route(&of_action, post(|| async { off() })),
    }
}

fn off() -> Refusal {
    let what = "actions are disabled: start taskwork dashboard with --allow-actions and --operator-token-file FILE, or \
                use the command taskwork";
    forbidden(what.to_owned())
}

async fn state(State(actions): State<Arc<Actions>>, headers: HeaderMap) -> Response {
    let operator = actions.operators.who(&headers, now_s()).map(|operator| operator.name);
    json_of(&json!({ "allowed": true, "operator": operator }))
}

async fn answer(
    State(actions): State<Arc<Actions>>,
    Path(what): Path<String>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    match what.as_str() {
        "sign-in" => sign_in(&actions, peer, request).await,
        "sign-out" => {
            actions.check(request.headers(), TOKEN_BYTES_MAX)?;
            let cookies = actions.operators.no_cookies();
            Ok(with_cookies(json_of(&json!({ "said": "You have signed out." })), cookies))
        }
        what => act(actions, what, peer, request).await,
    }
}

/// A body with a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    token: String,
}

async fn sign_in(actions: &Actions, peer: IpAddr, request: Request) -> Result<Response, Refusal> {
    actions.check(request.headers(), TOKEN_BYTES_MAX)?;
    let headers = request.headers().clone();
    let sent = read(request.into_body(), TOKEN_BYTES_MAX).await?;
    let given: Given = serde_json::from_slice(&sent)
        .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "expected {\"token\": \"…\"}".to_owned()))?;
    let is_secure = actions.has_tls
        || text(&headers, header::ORIGIN).is_some_and(|origin| origin.starts_with("https://"));
    let signed_in = actions.operators.sign_in(given.token.trim(), now_s(), is_secure);
    let Some(SignedIn { name, cookie, session }) = signed_in else {
        return Err(Refusal(StatusCode::UNAUTHORIZED, "that is not an operator's token".to_owned()));
    };
    Asker::of(&name, peer, &headers).log("sign-in", "", "has signed in");
    Ok(with_cookies(json_of(&json!({ "operator": name, "session": session })), [cookie]))
}

async fn act(actions: Arc<Actions>, what: &str, peer: IpAddr, request: Request) -> Result<Response, Refusal> {
    let bytes_max = Action::bytes_max(what)
        .ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "there is no such action".to_owned()))?;
    actions.check(request.headers(), bytes_max)?;
    let Operator { name, session, is_bearer } = actions
        .operators
        .who_or_note(request.headers(), now_s())
        .ok_or_else(|| Refusal(StatusCode::UNAUTHORIZED, "sign in as an operator first".to_owned()))?;
    // Browsers send cookies automatically, but never a bearer token; and they report the origin.
    if !is_bearer && !request.headers().contains_key(header::ORIGIN) {
        return Err(forbidden("the browser did not report the origin of the request".to_owned()));
    }
    let busy = actions.sessions.enter(&session, Instant::now());
    let busy = busy.map_err(|why| Refusal(StatusCode::TOO_MANY_REQUESTS, why.to_string()))?;
    let asker = Asker::of(&name, peer, request.headers());
    let sent = read(request.into_body(), bytes_max).await?;
    let action = Action::read(what, &sent, &name).map_err(|why| Refusal(StatusCode::BAD_REQUEST, why))?;
    actions.note_leaving(&action)?;
    match begin(actions, action, asker, busy).await {
        Ok(Ok(said)) => Ok(json_of(&json!({ "said": said }))),
        Ok(Err(Failed { status, why })) => Err(Refusal(status, why)),
        Err(_) => Err(Refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "it was started, and failed here: see the log of the dashboard".to_owned(),
        )),
    }
}

/// Starts an action. It continues and is logged even if the browser disconnects; until it is done, its session cannot
/// start another one.
fn begin(actions: Arc<Actions>, action: Action, asker: Asker, busy: Busy) -> oneshot::Receiver<Outcome> {
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let _busy = busy;
        let outcome = time::timeout(ACTION_TIMEOUT, actions.actor.perform(&action)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let waited = ACTION_TIMEOUT.as_secs();
            let why = format!("it was not done within {waited} s; it may still complete");
            Err(Failed { status: StatusCode::GATEWAY_TIMEOUT, why })
        });
        if outcome.is_err() {
            actions.forget_leaving(&action);
        }
        let result = match &outcome {
            Ok(said) => said,
            Err(failed) => &failed.why,
        };
        asker.log(action.name(), &action.on(), result);
        let _ = tell.send(outcome);
    });
    told
}

/// Reads a body with limits on its size and time.
async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    match time::timeout(BODY_TIMEOUT, body::to_bytes(body, bytes_max)).await {
        Ok(Ok(sent)) => Ok(sent),
        Ok(Err(_)) => Err(too_large(bytes_max)),
        Err(_) => Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())),
    }
}

fn too_large(bytes_max: usize) -> Refusal {
    Refusal(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {bytes_max} bytes here"))
}

fn forbidden(what: String) -> Refusal {
    Refusal(StatusCode::FORBIDDEN, what)
}

fn json_of(value: &serde_json::Value) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], value.to_string())
        .into_response()
}

fn with_cookies(mut response: Response, cookies: impl IntoIterator<Item = String>) -> Response {
    for cookie in cookies {
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    response
}
