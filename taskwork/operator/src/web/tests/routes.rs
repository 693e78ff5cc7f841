//! Routes, and requests refused for all clients.

use taskwork::{node::Health, view::Snapshot};
use taskwork_cli::web::{Pages, exposition::Format, listen, serve};

use super::*;
use crate::web::pages_of_cluster;

#[test]
fn known_paths_are_served_and_others_refused() {
    let server = Server::replayed(&[]);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/api/view", "application/json"),
        ("/api/job/j-0000000001", "application/json"),
        ("/api/node/n1", "application/json"),
        ("/metrics", Format::Prometheus.content_type()),
        ("/livez", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status(), answer.header("content-type")), (200, Some(kind)), "{path}");
        assert!(!answer.body().is_empty(), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'; ") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(answer.header("referrer-policy").is_some() && answer.header("cache-control").is_some());
        let head = server.answer(
            format!("HEAD {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
        );
        assert_eq!((head.status(), head.body()), (200, ""), "{path}");
    }
    for path in [
        "/nothing",
        "/api",
        "/api/",
        "/api/job/",
        "/api/job/none",
        "/api/node/none",
        "/api/job/a/b",
        "/main.js/",
        "//",
        "/sign-in",
    ] {
        assert_eq!(server.get(path).status(), 404, "{path}");
    }
}

#[test]
fn display_of_job_is_served_without_invalid_parts() {
    let display = |status: &Value| {
        let mut events = events();
        let mut record: Value = match report(80, 7.0, 1) {
            Content::Data(bytes) => serde_json::from_slice(&bytes).unwrap(),
            _ => panic!("it is a record"),
        };
        record["status"] = status.clone();
        events.push(Event::of(61_000, format!("jobs/{JOB}/figures/n1"), data(&record)));
        events.push(Event::tick(61_000));
        let mut view = View::default();
        for event in &events {
            view.apply(event);
        }
        let server = Server::start(Board::replayed("record.jsonl".to_owned(), view), &[]);
        server.get(&format!("/api/job/{JOB}")).json()["job"]["about"]["display"].take()
    };
    let mut content = json!({
        "version": 1,
        "values": [{ "name": "eggs", "label": NAME, "unit": "count", "value": 7 }, { "name": "no name" }, 7],
        "tables": [{ "name": "nests", "columns": [{ "name": "x", "unit": "text" }], "rows": [{ "x": 7 }, null] }, []],
        "pictures": [
            { "name": "good.svg", "format": "svg", "content": "<svg><rect/></svg>" },
            { "name": "bad.svg", "format": "svg", "content": "<svg onload='alert(1)'/>" },
        ],
        "documents": "none",
    });
    let shown = display(&json!({ "rank": 1, "content": content }));
    assert_eq!(shown["values"], json!([{ "name": "eggs", "label": NAME, "unit": "count", "value": 7 }]));
    assert_eq!((&shown["tables"][0]["rows"], &shown["tables"][0]["omitted"]), (&json!([{}]), &json!(1)));
    assert_eq!((shown["pictures"].as_array().unwrap().len(), &shown["documents"]), (1, &json!([])));
    content["version"] = json!(9);
    let shown = display(&json!({ "rank": 1, "content": content }));
    assert!(shown["values"][0]["value"].as_str().unwrap().contains("version 9"), "{shown}");
    for content in [json!(7), json!([]), json!({ "version": "1" })] {
        assert_eq!(display(&json!({ "rank": 1, "content": content })), Value::Null);
    }
}

#[test]
fn metrics_use_requested_format() {
    let server = Server::replayed(&[]);
    let get = |accept: &str| server.get_with("/metrics", &format!("accept: {accept}\r\n"));
    let new = get("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1");
    assert_eq!(new.header("content-type"), Some(Format::OpenMetrics.content_type()));
    assert!(new.body().ends_with("# EOF\n") && new.body().contains("# TYPE taskwork_tasks counter"));
    let old = get("text/plain;version=0.0.4;q=1,*/*;q=0.1");
    assert_eq!(old.header("content-type"), Some(Format::Prometheus.content_type()));
    assert!(!old.body().contains("# EOF") && old.body().contains("# TYPE taskwork_tasks_total counter"));
}

#[test]
fn path_traversal_is_refused() {
    let server = Server::replayed(&[]);
    for path in [
        "/../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/..%2fCargo.toml",
        "/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets/../main.js",
        "/%00main.js",
        "/main.js%00",
        "/%ff",
        "/api/job/..%2f..%2fmain.js",
    ] {
        let status = server.get(path).status();
        assert!(status == 404 || status == 400, "{path}: {status}");
    }
}

#[test]
fn unchanged_asset_is_not_sent_again() {
    let server = Server::replayed(&[]);
    let first = server.get("/main.js");
    let tag = first.header("etag").unwrap();
    let again = server.get_with("/main.js", &format!("if-none-match: \"other\", {tag}\r\n"));
    assert_eq!((again.status(), again.body(), again.header("etag")), (304, "", Some(tag)));
    assert_eq!(server.get_with("/main.js", "if-none-match: \"other\"\r\n").status(), 200);
}

#[test]
fn pages_and_data_are_compressed_on_request() {
    let server = Server::replayed(&[]);
    let get = |path: &str, accepted: &str| {
        let request =
            format!("GET {path} HTTP/1.0\r\nhost: localhost\r\naccept-encoding: {accepted}\r\n\r\n");
        let answer = bytes(server.connect(), request.as_bytes());
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end..].to_vec())
    };
    for path in ["/", "/app.js", "/api/view", &format!("/api/job/{JOB}")] {
        let (plain_head, plain) = get(path, "identity");
        let (head, compressed) = get(path, "gzip");
        assert!(head.contains("content-encoding: gzip\r\n") && !head.contains("content-length"), "{head}");
        for head in [&plain_head, &head] {
            assert!(head.contains("vary: accept-encoding\r\n"), "{head}");
        }
        assert!(!plain_head.contains("content-encoding") && compressed.len() < plain.len(), "{plain_head}");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut text).unwrap();
        // Clocks advance.
        assert!(text == plain || path.starts_with("/api"), "{path}");
        assert_eq!((text[0], text.last()), (plain[0], plain.last()), "{path}");
    }
    let (head, _) = get("/nothing", "gzip");
    assert!(head.contains(" 404 ") && !head.contains("content-encoding"), "{head}");
}

#[test]
fn recorded_cluster_is_served_like_live_one() {
    let server = Server::replayed(&[]);
    let view = server.get("/api/view").json();
    assert_eq!(
        (&view["source"], &view["cluster"], &view["now_ms"]),
        (&json!("replay"), &json!("record.jsonl"), &json!(60_000))
    );
    assert_eq!((&view["stale_since_ms"], &view["seq"]), (&Value::Null, &view["snapshot"]["seq"]));
    assert_eq!(view["snapshot"]["members"].as_object().unwrap().len(), 2);
    let about = &view["snapshot"]["jobs"][JOB]["about"];
    assert_eq!(
        (&about["stage"], &about["best"], &about["open_tasks"]),
        (&json!("running"), &json!(7.0), &json!(4))
    );
    // A name is data, even if it looks like markup.
    assert_eq!(about["record"]["name"], NAME);
    assert_eq!(server.get("/readyz").status(), 200);
}

#[test]
fn job_details_are_served_as_json() {
    let server = Server::replayed(&[]);
    let job = server.get(&format!("/api/job/{JOB}")).json();
    assert_eq!((&job["id"], &job["job"]["about"]["record"]["name"]), (&json!(JOB), &json!(NAME)));
    assert_eq!(job["series"]["points"].as_array().unwrap().len(), 2);
    assert_eq!((&job["nodes"][0]["node"], &job["nodes"][0]["state"]), (&json!("n1"), &json!("member")));
    let improvements = [
        json!({ "at_ms": 1_000, "value": 9.0, "bound": 3.5, "gap": (9.0 - 3.5) / 9.0, "node": null }),
        json!({ "at_ms": 60_000, "value": 7.0, "bound": 3.5, "gap": 0.5, "node": "n1" }),
    ];
    // Only the latest event of the first one is still known.
    assert_eq!(job["improvements"].as_array().unwrap()[..], improvements);
    let moments = job["moments"].as_array().unwrap();
    assert!(moments.iter().any(|moment| moment["what"] == "job_runs"));
    assert!(moments.iter().all(|moment| moment["name"] != "n2"), "it has no part in the job");
    assert_eq!(job["steals"]["gifts"], json!([{ "from": "n2", "to": "n1", "tasks": 3 }]));
    assert_eq!(job["steals"]["took"], json!({ "count": 0, "median_s": null, "p99_s": null }));
    let went = json!({ "searching_s": 3.0, "looking_s": 1.0, "starting_s": 0.0, "ending_s": 0.0 });
    assert_eq!((&job["where_time_went"], &job["nodes"][0]["where_time_went"]), (&went, &went));
    assert_eq!(
        (&job["zookeeper"]["transactions_per_thousand_tasks"], &job["picture"]),
        (&json!(0.0), &Value::Null)
    );
}

#[test]
fn job_history_is_served_as_csv() {
    let server = Server::replayed(&[]);
    let answer = server.get(&format!("/api/job/{JOB}/series.csv"));
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("text/csv; charset=utf-8")));
    let lines: Vec<&str> = answer.body().lines().collect();
    let first = "at_ms,nodes,workers,busy,worked,share,best,bound,open_tasks";
    // The share is unknown: the field is empty, not 0.
    assert_eq!(lines, [first, "1000,1,2,1,5,,9.0,3.5,4", "60000,1,2,1,70,,7.0,3.5,4"]);
    assert_eq!(server.get("/api/job/none/series.csv").status(), 404);
}

#[test]
fn writes_are_refused_and_requests_are_bounded() {
    let server = Server::replayed(&[]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"] {
        let answer = server.answer(
            format!("{method} /api/view HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
        );
        assert_eq!((answer.status(), answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let body = b"GET /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\nbody";
    assert_eq!(server.answer(body).status(), 413);
    let chunks = b"GET /livez HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n";
    assert_eq!(server.answer(chunks).status(), 413);
    let long = "x".repeat(100_000);
    for head in [
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
        format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(100)),
        "\0 no HTTP\r\n\r\n".to_owned(),
    ] {
        let status = server.answer(head.as_bytes()).status();
        assert!([0, 400, 414, 431].contains(&status), "{status}");
    }
    assert!(server.get("/livez").body().ends_with("alive\n"), "it still serves");
}

#[test]
fn unknown_host_names_are_refused() {
    let server = Server::replayed(&["--host-name", "board.example"]);
    let ask = |hosts: &str| {
        server.answer(format!("GET /api/view HTTP/1.1\r\n{hosts}connection: close\r\n\r\n").as_bytes())
    };
    let at = server.at;
    for host in ["localhost", "board.example", "Board.Example:443", "[::1]:80", &at.to_string()] {
        assert_eq!(ask(&format!("host: {host}\r\n")).status(), 200, "{host}");
    }
    for host in ["evil.example", "evil.example:8787", "board.example.evil.example", "192.0.2.1"] {
        let refused = ask(&format!("host: {host}\r\n"));
        assert_eq!(refused.status(), 421, "{host}");
        assert!(refused.body().contains("--host-name") && !refused.body().contains("snapshot"));
    }
    assert_eq!(ask("").status(), 400);
    assert_eq!(ask("host: localhost\r\nhost: evil.example\r\n").status(), 400);
}

#[test]
fn unfinished_request_is_disconnected() {
    let server = Server::replayed(&[]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: loc").unwrap();
    let mut rest = Vec::new();
    // The server closes the connection before the read times out.
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn node_serves_only_its_own_pages() {
    let listener = listen("--health", ([127, 0, 0, 1], 0).into()).unwrap();
    let at = listener.local_addr().unwrap();
    let pages = Pages::of_node(Health::default);
    tokio::spawn(serve(listener, pages));
    let get = |path: &'static str, host: &'static str| async move {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let asking = move || answer(TcpStream::connect(at).unwrap(), request.as_bytes()).status();
        tokio::task::spawn_blocking(asking).await.unwrap()
    };
    assert_eq!((get("/livez", "localhost").await, get("/readyz", "localhost").await), (200, 503));
    assert_eq!((get("/", "localhost").await, get("/api/view", "localhost").await), (404, 404));
    assert_eq!((get("/metrics", "localhost").await, get("/metrics", "evil.example").await), (200, 421));
    let _ = pages_of_cluster(Snapshot::default, || None, || Ok(()));
}

#[tokio::test]
async fn node_address_reachable_by_others_is_refused_with_remedy() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9000"] {
        let refused = listen("--health", address.parse().unwrap()).unwrap_err().to_string();
        for word in ["--health", address, "127.0.0.1", "proxy", "ssh -L"] {
            assert!(refused.contains(word), "no {word} in {refused}");
        }
    }
}
