//! Actions: authorization, the form of requests, and their results.

use std::{
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;
use crate::web::{
    access::tests::{TOKEN, write},
    actions::{Action, Actor, Failed, Outcome},
};

const ANNA: &str = "anna's-token-is-a-long-one";
const BERT: &str = "bert's-token-is-another-one";
const NODE: &str = "n00000000000000ab";

/// An actor that only records the actions.
struct Fake {
    begun: AtomicUsize,
    done: Mutex<Vec<Action>>,
    fails: Mutex<Option<(StatusCode, String)>>,
    /// One permit for each action that may complete.
    may_end: Semaphore,
}

impl Actor for Fake {
    fn perform<'a>(&'a self, action: &'a Action) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(async {
            self.begun.fetch_add(1, Relaxed);
            self.may_end.acquire().await.unwrap().forget();
            self.done.lock().unwrap().push(action.clone());
            match self.fails.lock().unwrap().clone() {
                Some((status, why)) => Err(Failed { status, why }),
                None => Ok("it is done".to_owned()),
            }
        })
    }
}

/// A dashboard with operators.
struct Acting {
    server: Server,
    fake: Arc<Fake>,
    _folder: TempDir,
}

impl Acting {
    fn start(with_viewer: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for (name, token) in [("viewer", TOKEN), ("anna", ANNA), ("bert", BERT)] {
            write(&folder.path().join(name), token);
        }
        let (viewer, anna, bert) = (path("viewer"), path("anna"), path("bert"));
        let mut arguments =
            vec!["--allow-actions", "--operator-token-file", &anna, "--operator-token-file", &bert];
        arguments.extend(["--host-name", "board.example"]);
        if with_viewer {
            arguments.extend(["--token-file", &viewer]);
        }
        let fake = Fake {
            begun: AtomicUsize::new(0),
            done: Mutex::default(),
            fails: Mutex::default(),
            may_end: Semaphore::new(10_000),
        };
        let (fake, board) = (Arc::new(fake), Board::replayed("record.jsonl".to_owned(), cluster()));
        let its = Arc::clone(&fake);
        let server = Server::start_with(board, &arguments, |site| site.acting(|| its));
        Self { server, fake, _folder: folder }
    }

    /// Returns the headers of a page of this site, each with a line break.
    fn of_page(&self) -> String {
        format!(
            "content-type: application/json\r\nx-taskwork-action: 1\r\norigin: http://{}\r\n",
            self.server.at
        )
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let head = format!(
            "POST /api/operator/{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            self.server.at,
            body.len()
        );
        self.server.answer(head.as_bytes())
    }

    /// Signs in, and returns the headers of a page with the session.
    fn sign_in(&self, token: &str) -> String {
        let answer = self.post("sign-in", &self.of_page(), &json!({ "token": token }).to_string());
        assert_eq!(answer.status(), 200, "{}", answer.body());
        signed_in(&answer, "")
    }

    fn done(&self) -> Vec<Action> {
        std::mem::take(&mut self.fake.done.lock().unwrap())
    }
}

/// Returns the headers of a page with the session of a sign-in, and with other cookies, which end with `; `.
fn signed_in(answer: &Answer, others: &str) -> String {
    let cookie = answer.header("set-cookie").unwrap().split_once(';').unwrap().0;
    let session = answer.json()["session"].as_str().unwrap().to_owned();
    format!("cookie: {others}{cookie}\r\nx-taskwork-session: {session}\r\n")
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

const SUSPEND: &str = r#"{"job":"j-0000000001"}"#;

#[test]
fn action_requires_operator_and_own_origin() {
    let acting = Acting::start(false);
    let own = format!("http://{}", acting.server.at);
    let cookie = acting.sign_in(ANNA);
    // A browser also sends the cookie to servers on other ports.
    let stolen = cookie.split_once("\r\n").unwrap().0.to_owned() + "\r\n";
    let nobody = [String::new(), bearer(TOKEN), bearer("another-token-nobody-guesses"), stolen];
    let roles = nobody.map(|headers| (headers, false, false)).into_iter();
    let roles: Vec<_> = roles.chain([(cookie, true, false), (bearer(BERT), true, true)]).collect();
    let origins = [
        (Some(own.as_str()), true),
        (Some("https://board.example"), true),
        (Some("http://board.example:8443"), true),
        // Another server on this machine.
        (Some("http://127.0.0.1:9"), false),
        (Some("http://localhost:8787"), false),
        (Some("https://evil.example"), false),
        (Some("https://board.example.evil.example"), false),
        (Some("null"), false),
        (Some("127.0.0.1"), false),
    ];
    let mut expected_done = 0;
    for (who, may_act, is_bearer) in &roles {
        for (origin, is_own) in origins.into_iter().chain([(None, true)]) {
            for kind in
                ["application/json", "Application/JSON; charset=utf-8", "text/plain", "", "application/jsonp"]
            {
                for header in ["x-taskwork-action: 1\r\n", "x-taskwork-action: 0\r\n", ""] {
                    let origin_line =
                        origin.map(|origin| format!("origin: {origin}\r\n")).unwrap_or_default();
                    let kind_line =
                        if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") };
                    let status =
                        if !kind.to_lowercase().starts_with("application/json") || kind.ends_with('p') {
                            415
                        } else if header != "x-taskwork-action: 1\r\n" || !is_own {
                            403
                        } else if !may_act {
                            401
                        } else if origin.is_none() && !is_bearer {
                            403
                        } else {
                            expected_done += 1;
                            200
                        };
                    let answer =
                        acting.post("suspend", &format!("{who}{origin_line}{kind_line}{header}"), SUSPEND);
                    assert_eq!(
                        answer.status(),
                        status,
                        "{who}{origin_line}{kind_line}{header}{}",
                        answer.body()
                    );
                }
            }
        }
    }
    assert_eq!((acting.done().len(), expected_done > 0), (expected_done, true));
}

#[test]
fn actions_are_performed_as_requested() {
    let acting = Acting::start(false);
    let headers = acting.of_page() + &acting.sign_in(ANNA);
    let drain = format!("{{\"node\":\"{NODE}\"}}");
    for (path, body, says) in [
        ("suspend", SUSPEND, "Suspend"),
        ("resume", SUSPEND, "Resume"),
        ("cancel", r#"{"job":"1","reason":"too dear"}"#, "too dear"),
        ("cancel", r#"{"job":"1"}"#, "by anna"),
        ("drain", &drain, "Drain"),
        ("inject", r#"{"job":"1","suggestion":{"tour":[0,1,2]}}"#, "tour"),
    ] {
        let answer = acting.post(path, &headers, body);
        assert_eq!((answer.status(), answer.json()), (200, json!({ "said": "it is done" })), "{path}");
        let done = format!("{:?}", acting.done());
        assert!(done.contains(says), "{path}: {done}");
    }
    for (path, body, status) in [
        ("suspend", "", 400),
        ("suspend", "[]", 400),
        ("suspend", r#"{"job":"none"}"#, 400),
        ("inject", r#"{"job":"1"}"#, 400),
        ("forget", SUSPEND, 404),
        ("..%2f..%2fapi", SUSPEND, 404),
    ] {
        assert_eq!(acting.post(path, &headers, body).status(), status, "{path} {body}");
    }
    // GET requests have no effect.
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
        let head = format!(
            "{method} /api/operator/suspend HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
        );
        assert_eq!(acting.server.answer(head.as_bytes()).status(), 405, "{method}");
    }
    assert_eq!(acting.done(), []);
}

#[test]
fn client_error_is_reported_to_page() {
    let acting = Acting::start(false);
    let headers = acting.of_page() + &acting.sign_in(ANNA);
    for (status, why) in [
        (StatusCode::NOT_FOUND, "cluster demo has no job j-0000000001"),
        (StatusCode::CONFLICT, "job j-0000000001 is over already"),
        (StatusCode::SERVICE_UNAVAILABLE, "ZooKeeper at zk1 has not answered for 15 s"),
    ] {
        *acting.fake.fails.lock().unwrap() = Some((status, why.to_owned()));
        let answer = acting.post("cancel", &headers, SUSPEND);
        assert_eq!((answer.status(), answer.body().trim_end()), (status.as_u16(), why));
    }
}

#[test]
fn second_drain_of_same_node_is_refused() {
    let acting = Acting::start(false);
    let headers = acting.of_page() + &bearer(ANNA);
    let drain = |node: &str| acting.post("drain", &headers, &format!("{{\"node\":\"{node}\"}}"));
    assert_eq!(drain(NODE).status(), 200);
    let again = drain(NODE);
    assert_eq!(again.status(), 409);
    assert!(again.body().contains("at once") && again.body().contains("taskwork drain"), "{}", again.body());
    // Another operator has asked the node, as the view shows.
    let other = "n00000000000000cd";
    let board = &acting.server.board;
    board.apply(&Event::of(70_000, format!("members/{other}"), member(other)));
    board.apply(&Event::of(70_000, format!("drain/{other}"), Content::Data(Vec::new())));
    board.apply(&Event::tick(70_000));
    assert_eq!(drain(other).status(), 409);
    assert_eq!(acting.done().len(), 1);
    // After a failure the request may be repeated: the client asks a node at most once.
    let third = "n00000000000000ef";
    for status in [404, 503, 504] {
        let fails = (StatusCode::from_u16(status).unwrap(), "it has failed".to_owned());
        *acting.fake.fails.lock().unwrap() = Some(fails);
        assert_eq!((drain(third).status(), drain(third).status()), (status, status));
    }
}

#[test]
fn request_bodies_are_limited_in_size_and_time() {
    let acting = Acting::start(false);
    let headers = acting.of_page() + &acting.sign_in(ANNA);
    // Refused by the declared length, before the body arrives.
    let gigabyte = |path: &str, headers: &str| {
        let head = format!(
            "POST /api/operator/{path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 1073741824\r\n{headers}\r\n",
            acting.server.at
        );
        acting.server.answer(head.as_bytes()).status()
    };
    for path in ["suspend", "inject", "sign-in", "sign-out"] {
        assert_eq!((gigabyte(path, &headers), gigabyte(path, "")), (413, 413), "{path}");
    }
    let chunked = |path: &str, bytes: usize| {
        let head = format!(
            "POST /api/operator/{path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n{headers}\r\n",
            acting.server.at
        );
        let body = format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(bytes));
        acting.server.answer((head + &body).as_bytes()).status()
    };
    assert_eq!((chunked("suspend", 100), chunked("suspend", 10_000)), (400, 413));
    assert_eq!(chunked("inject", 100_000), 400);
    // The connection may be closed before the whole body was sent.
    assert!([0, 413].contains(&chunked("inject", 3 << 20)));
    // Without authentication the body is not read.
    let mut stranger = acting.server.connect();
    write!(
        stranger,
        "POST /api/operator/suspend HTTP/1.1\r\nhost: {}\r\ncontent-length: 1000\r\n{}\r\n",
        acting.server.at,
        acting.of_page()
    )
    .unwrap();
    let mut answer = [0; 12];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    // An incomplete body times out, and does not block others.
    let mut slow = acting.server.connect();
    write!(
        slow,
        "POST /api/operator/suspend HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 20\r\n{headers}\r\n{{",
        acting.server.at
    )
    .unwrap();
    until("the slow one has started", || {
        acting.post("suspend", &headers, SUSPEND).body().contains("not done yet")
    });
    assert_eq!(acting.post("suspend", &(acting.of_page() + &bearer(BERT)), SUSPEND).status(), 200);
    assert_eq!(answer_of(slow).status(), 408);
    assert_eq!(acting.post("suspend", &headers, SUSPEND).status(), 200, "the session stays valid");
}

fn answer_of(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer(String::from_utf8_lossy(&answer).into_owned())
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn session_performs_one_action_at_a_time_despite_disconnect() {
    let acting = Acting::start(false);
    let headers = acting.of_page() + &acting.sign_in(ANNA);
    let all = u32::try_from(acting.fake.may_end.available_permits()).unwrap();
    acting.fake.may_end.try_acquire_many(all).unwrap().forget();
    let mut waits = acting.server.connect();
    write!(
        waits,
        "POST /api/operator/suspend HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{headers}\r\n{SUSPEND}",
        acting.server.at,
        SUSPEND.len()
    )
    .unwrap();
    until("it has started", || acting.fake.begun.load(Relaxed) == 1);
    assert!(acting.post("suspend", &headers, SUSPEND).body().contains("not done yet"));
    // The browser disconnects, but its action continues.
    drop(waits);
    assert_eq!(acting.post("resume", &headers, SUSPEND).status(), 429);
    acting.fake.may_end.add_permits(10);
    until("it is done", || acting.post("resume", &headers, SUSPEND).status() == 200);
    let done: Vec<String> = acting.done().iter().map(|action| format!("{action:?}")).collect();
    assert!(done.len() == 2 && done[0].starts_with("Suspend") && done[1].starts_with("Resume"), "{done:?}");
}

#[test]
fn operator_signs_in_and_out() {
    let acting = Acting::start(true);
    let viewer = bearer(TOKEN);
    let state = |headers: &str| acting.server.get_with("/api/operator", headers);
    assert_eq!(state("").status(), 401, "who may not look does not learn it");
    assert_eq!(state(&viewer).json(), json!({ "allowed": true, "operator": null }));
    // Operators may read, too.
    assert_eq!(state(&bearer(ANNA)).json(), json!({ "allowed": true, "operator": "anna" }));
    assert_eq!(acting.server.get_with("/api/view", &bearer(ANNA)).status(), 200);
    assert_eq!(
        acting.post("suspend", &(acting.of_page() + &viewer), SUSPEND).status(),
        401,
        "a viewer does not act"
    );
    let form = |headers: &str, body: &str| acting.post("sign-in", headers, body);
    let given = json!({ "token": BERT }).to_string();
    // The cookie of a viewer comes first.
    let viewer_form = format!("token={TOKEN}");
    let head = format!(
        "POST /sign-in HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{viewer_form}",
        viewer_form.len()
    );
    let answer = acting.server.answer(head.as_bytes());
    let viewer = answer.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
    let page = acting.of_page() + &format!("cookie: {viewer}\r\n");
    assert_eq!(form(&acting.of_page(), &given).status(), 401);
    for wrong in [TOKEN, "", "anna", &BERT[1..]] {
        let refused = form(&page, &json!({ "token": wrong }).to_string());
        assert_eq!((refused.status(), refused.header("set-cookie")), (401, None), "{wrong}");
    }
    assert_eq!(form(&page, "token=anything").status(), 400);
    assert_eq!(
        form(&page.replace("application/json", "application/x-www-form-urlencoded"), &given).status(),
        415
    );
    assert_eq!(form(&page.replace("http://", "http://evil."), &given).status(), 403);
    let answer = form(&page, &given);
    assert_eq!((answer.status(), &answer.json()["operator"]), (200, &json!("bert")));
    let cookie = answer.header("set-cookie").unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Max-Age=3600"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains(BERT) && !cookie.contains("Secure"));
    let both = signed_in(&answer, &format!("{viewer}; "));
    assert_eq!(state(&both).json()["operator"], "bert");
    assert_eq!(acting.post("suspend", &(acting.of_page() + &both), SUSPEND).status(), 200);
    let out = acting.post("sign-out", &(acting.of_page() + &both), "{}");
    assert_eq!((out.status(), out.header("set-cookie").unwrap().contains("Max-Age=0")), (200, true));
    let by_tls = page.replace("http://", "https://").replace(&acting.server.at.to_string(), "board.example");
    assert!(form(&by_tls, &given).header("set-cookie").unwrap().ends_with("Secure"));
}

#[test]
fn actions_on_other_host_names_are_refused() {
    let acting = Acting::start(false);
    let head = format!(
        "POST /api/operator/suspend HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/json\r\nx-taskwork-action: 1\r\norigin: http://evil.example\r\n{}\r\n{SUSPEND}",
        SUSPEND.len(),
        acting.sign_in(ANNA)
    );
    assert_eq!(acting.server.answer(head.as_bytes()).status(), 421);
    let said = "sec-fetch-site: same-site\r\n";
    let headers = acting.of_page() + &acting.sign_in(ANNA) + said;
    assert_eq!(acting.post("suspend", &headers, SUSPEND).status(), 403, "another port of this machine");
    assert_eq!(acting.done(), []);
}

#[test]
fn actions_are_disabled_by_default() {
    let server = Server::replayed(&[]);
    assert_eq!(server.get("/api/operator").json(), json!({ "allowed": false }));
    for path in ["suspend", "sign-in", "forget"] {
        let head = format!(
            "POST /api/operator/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/json\r\nx-taskwork-action: 1\r\n\r\n{SUSPEND}",
            SUSPEND.len()
        );
        let refused = server.answer(head.as_bytes());
        assert_eq!(refused.status(), 403, "{path}");
        assert!(refused.body().contains("--allow-actions"), "{}", refused.body());
    }
    let head =
        "POST /api/operator HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(server.answer(head.as_bytes()).status(), 405);
}

#[test]
fn actions_require_operator_token_file() {
    let parse = |line: &[&str]| Line::try_parse_from(["test"].iter().chain(line));
    assert!(parse(&["--allow-actions"]).is_err(), "a token is missing");
    assert!(parse(&["--operator-token-file", "anna"]).is_err(), "it would have no effect");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    write(&file, TOKEN);
    let file = file.to_str().unwrap();
    let runtime = Runtime::new().unwrap();
    let _here = runtime.enter();
    let both =
        ["--listen", "127.0.0.1:0", "--token-file", file, "--allow-actions", "--operator-token-file", file];
    let refused = offer(&both).open().unwrap_err().to_string();
    assert!(refused.contains("--operator-token-file") && refused.contains("the same token"), "{refused}");
    let missing = ["--listen", "127.0.0.1:0", "--allow-actions", "--operator-token-file", "none"];
    assert!(offer(&missing).open().unwrap_err().to_string().contains("none"));
}
