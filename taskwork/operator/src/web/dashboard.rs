//! The HTTP server of the pages and their data, with its options.

use std::{convert::Infallible, fmt, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{
    Router,
    extract::{self, State},
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use hyper_util::service::TowerToHyperService;
use taskwork::Client;
use taskwork_cli::{Failure, web::tls::TlsArguments};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;

use super::{
    access::{self, Door, Token},
    actions::{self, Actions, Actor, Operators},
    assets,
    board::Board,
    compress::compress,
    detail,
    documents::{self, Library},
    events::{self, STREAMS_MAX},
    guard::{Names, Refusal, guard},
    pages_of_cluster, server,
};

/// The options of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Offer {
    /// The address to serve on. If other machines can reach it, --tls-cert, --tls-key and --token-file are required.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8787")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    tls: TlsArguments,
    /// A file with a token of at least 20 characters, required for all requests: programs send it as
    /// "Authorization: Bearer TOKEN", browsers by a form. It must be readable only by its owner, or a group assigned by
    /// root.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let operators act on the pages: suspend, resume and cancel jobs, ask nodes to leave, send suggestions to jobs.
    /// The default is read-only.
    #[arg(long, requires = "operator_token_file")]
    allow_actions: bool,
    /// A file with the token of an operator, in the form of --token-file but with another token; may be repeated. The
    /// name of the file is the operator's name in the log.
    #[arg(long, value_name = "FILE", requires = "allow_actions")]
    operator_token_file: Vec<PathBuf>,
}

/// A server that listens, but does not serve yet.
pub(crate) struct Site {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    token: Option<Token>,
    names: Names,
    /// The operators, and the performer of their actions.
    operators: Option<Arc<Operators>>,
    actor: Option<Arc<dyn Actor>>,
    /// The source of documents on request.
    library: Option<Arc<dyn Library>>,
}

impl Offer {
    /// Starts to listen.
    ///
    /// # Errors
    /// If access would be insecure, a file cannot be read, or the address cannot be listened on.
    pub(crate) fn open(&self) -> Result<Site, Failure> {
        let Self { listen, tls, token_file, .. } = self;
        if !listen.ip().is_loopback() && (!tls.has_certificate() || token_file.is_none()) {
            return Err(Failure::usage(format!(
                "--listen {listen} could be reached by other machines, so it needs TLS and a token:\n  \
                 --tls-cert FILE --tls-key FILE, a certificate and its key in PEM;\n  \
                 --token-file FILE, made with: (umask 077; head -c 24 /dev/urandom | base64 > FILE)\n  \
                 Or listen on this machine alone, as in --listen 127.0.0.1:{port}, and let a proxy with TLS and a \
                 sign-in, or a tunnel (ssh -L {port}:127.0.0.1:{port}), lead there",
                port = listen.port(),
            )));
        }
        let token = token_file.as_deref().map(Token::read).transpose()?;
        let operators = if self.allow_actions {
            Some(Arc::new(Operators::read(&self.operator_token_file, token.as_ref())?))
        } else {
            None
        };
        let names = Names::of(listen.ip(), &tls.host_name).over_tls(tls.has_certificate());
        let tls = tls.acceptor()?;
        let listener = server::listen("--listen", *listen)?;
        Ok(Site { listener, tls, token, names, operators, actor: None, library: None })
    }
}

/// The shared state of request handlers.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) board: Arc<Board>,
    pub(super) streams: Arc<Semaphore>,
}

impl Site {
    /// Returns the URL of the first page.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let at = self.listener.local_addr().map_or_else(|_| String::new(), |at| at.to_string());
        format!("{scheme}://{at}/")
    }

    /// Requests documents of jobs through a client, and lets operators act through it if actions are allowed.
    pub(crate) fn with_client(self, client: &Client) -> Self {
        self.acting(|| actions::by_client(client)).with_library(documents::by_client(client))
    }

    pub(super) fn with_library(self, library: Arc<dyn Library>) -> Self {
        Self { library: Some(library), ..self }
    }

    pub(super) fn acting(self, actor: impl FnOnce() -> Arc<dyn Actor>) -> Self {
        let actor = self.operators.is_some().then(actor);
        Self { actor, ..self }
    }

    /// Serves a board until the process is stopped.
    pub(crate) async fn serve(self, board: Arc<Board>) -> Infallible {
        let Self { listener, tls, token, names, operators, actor, library } = self;
        let (names, has_tls) = (Arc::new(names), tls.is_some());
        let door = token.map(|token| Door::new(token, Arc::clone(&names), has_tls));
        let door = door.map(|door| door.with_operators(operators.clone()));
        let actions = operators.zip(actor).map(|(operators, actor)| {
            Arc::new(Actions::new(operators, actor, Arc::clone(&board), Arc::clone(&names), has_tls))
        });
        let others = documents::routes(library, &board).merge(actions::routes(actions));
        server::serve(listener, tls, TowerToHyperService::new(router(board, door, others, names))).await
    }
}

fn router(board: Arc<Board>, door: Option<Door>, others: Router, names: Arc<Names>) -> Router {
    let [its, of_controller, ready] = [(); 3].map(|()| Arc::clone(&board));
    let controller = move || of_controller.controller();
    let pages = pages_of_cluster(move || its.snapshot(), controller, move || ready.ready());
    let served = Served { board, streams: Arc::new(Semaphore::new(STREAMS_MAX)) };
    let router = Router::new()
        .route("/", get(assets::index))
        .route("/api/view", get(view))
        .route("/api/job/{id}", get(job))
        .route("/api/job/{id}/series.csv", get(series))
        .route("/api/node/{name}", get(node))
        .route("/events", get(events::follow))
        .route("/{asset}", get(assets::asset))
        .layer(middleware::from_fn(compress))
        .with_state(served)
        .merge(pages.routes())
        .merge(others)
        .fallback(|| async { Refusal(StatusCode::NOT_FOUND, "there is no such page".to_owned()) });
    let router = match door {
        Some(door) => router.layer(middleware::from_fn_with_state(Arc::new(door), access::check)),
        None => router,
    };
    router.layer(middleware::from_fn_with_state(names, guard))
}

async fn view(State(served): State<Served>) -> Response {
    json(served.board.text())
}

async fn job(
    State(served): State<Served>,
    extract::Path(id): extract::Path<String>,
) -> Result<Response, Refusal> {
    let job = served.board.job(&id);
    let job = job.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "there is no such job".to_owned()))?;
    Ok(json(job.to_string()))
}

/// Serves the workers of a member over time.
async fn node(
    State(served): State<Served>,
    extract::Path(name): extract::Path<String>,
) -> Result<Response, Refusal> {
    let node = served.board.node(&name);
    let node = node.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "there is no such member".to_owned()))?;
    Ok(json(node.to_string()))
}

/// Serves the history of a job as CSV.
async fn series(
    State(served): State<Served>,
    extract::Path(id): extract::Path<String>,
) -> Result<Response, Refusal> {
    let job = served.board.job(&id);
    let job = job.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "there is no such job".to_owned()))?;
    let kind = HeaderValue::from_static("text/csv; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], detail::csv(&job)).into_response())
}

pub(super) fn json(text: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}
