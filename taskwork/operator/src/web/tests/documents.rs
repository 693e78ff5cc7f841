//! Documents of jobs on request.

use std::{sync::mpsc, thread};

use axum::http::StatusCode;
use taskwork::{
    JobId,
    display::{Document, Format},
};
use tokio::sync::Semaphore;

use super::*;
use crate::web::{
    actions::Failed,
    documents::{Library, Making},
};

/// A library with one document.
struct Fake;

impl Library for Fake {
    fn document<'a>(&'a self, job: &'a JobId, name: &'a str, about: Option<&'a str>) -> Making<'a> {
        Box::pin(async move {
            let text = format!("{name} of {job} about {about:?}");
            match name {
                "call" => Ok(Document::new(Format::Text, text)),
                _ => Err(Failed { status: StatusCode::CONFLICT, why: "it was not recorded".to_owned() }),
            }
        })
    }
}

/// A library whose documents are complete once a permit is free; it reports each request.
struct Slow {
    requested: mpsc::Sender<()>,
    finish: Semaphore,
}

impl Library for Slow {
    fn document<'a>(&'a self, _: &'a JobId, _: &'a str, _: Option<&'a str>) -> Making<'a> {
        Box::pin(async move {
            self.requested.send(()).unwrap();
            self.finish.acquire().await.unwrap().forget();
            Ok(Document::new(Format::Text, String::new()))
        })
    }
}

/// Returns a board with a job that offers two documents.
fn board() -> Board {
    let mut record: Value = match report(80, 7.0, 1) {
        Content::Data(bytes) => serde_json::from_slice(&bytes).unwrap(),
        _ => panic!("it is a record"),
    };
    let documents = json!([
        { "name": "call", "label": "why a call waits", "argument": "NUMBER" },
        { "name": "graph.svg", "label": "the graph" },
    ]);
    record["status"] = json!({ "rank": 1, "content": { "version": 1, "documents": documents } });
    let mut view = View::default();
    for event in &events() {
        view.apply(event);
    }
    view.apply(&Event::of(61_000, format!("jobs/{JOB}/figures/n1"), data(&record)));
    view.apply(&Event::tick(61_000));
    Board::replayed("record.jsonl".to_owned(), view)
}

#[test]
fn offered_documents_are_requested_and_others_refused() {
    let server = Server::start_with(board(), &[], |site| site.with_library(Arc::new(Fake)));
    let path = |rest: &str| format!("/api/job/{JOB}/document/{rest}");
    let answer = server.get(&path("call?about=12"));
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("application/json")));
    let text = format!("call of {JOB} about Some(\"12\")");
    assert_eq!(answer.json(), json!({ "format": "text", "content": text }));
    let refused = server.get(&path("graph.svg"));
    assert_eq!((refused.status(), refused.body().trim()), (409, "it was not recorded"));
    for rest in ["call", "graph.svg?about=1", "other", "call/more?about=1"] {
        assert_eq!(server.get(&path(rest)).status(), 404, "{rest}");
    }
    assert_eq!(server.get("/api/job/j-0000000009/document/call?about=1").status(), 404);
}

#[test]
fn request_over_the_limit_is_refused_before_its_job_is_read() {
    let (requested, requests) = mpsc::channel();
    let library = Arc::new(Slow { requested, finish: Semaphore::new(0) });
    let server = Server::start_with(board(), &[], |site| site.with_library(library.clone()));
    let path = format!("/api/job/{JOB}/document/call?about=12");
    thread::scope(|scope| {
        let made = [(); 2].map(|()| scope.spawn(|| server.get(&path).status()));
        for _ in 0..2 {
            requests.recv_timeout(SOON).unwrap();
        }
        assert_eq!(server.get("/api/job/j-0000000009/document/call?about=1").status(), 503);
        library.finish.add_permits(2);
        assert_eq!(made.map(|made| made.join().unwrap()), [200, 200]);
    });
}

#[test]
fn record_has_no_documents_on_request() {
    let server = Server::start(board(), &[]);
    assert_eq!(server.get(&format!("/api/job/{JOB}/document/call?about=12")).status(), 404);
}
