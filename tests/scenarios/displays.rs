//! The display of a job that a small framework describes, in all tools of the operator.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use taskwork_tests::{
    cluster::{Cluster, SOON},
    gate::Gate,
};

use crate::{observe, reports};

/// The depth of a tree that is not searched completely.
const ENDLESS: u32 = 60;

/// Returns whether both nodes have greeted each other, by the display of the job.
fn is_complete(display: &Value) -> bool {
    let rows = display["tables"][0]["rows"].as_array().map_or(0, Vec::len);
    // Each node hears greetings, and answers.
    rows == 2 && display["values"][0]["value"].as_u64() >= Some(2)
}

/// Waits until the operator's command shows the display of the job completely.
fn wait_for_display(cluster: &Cluster, id: &str) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let display = cluster.json("taskwork", &["job", id]).unwrap()["display"].take();
        if is_complete(&display) {
            return display;
        }
        assert!(Instant::now() < deadline, "{display}\n{}", cluster.logs());
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn framework_display_is_shown_by_every_tool() {
    let mut cluster = Cluster::shared().unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    let names = [0, 1].map(|node| cluster.name_of(node).unwrap());
    let arguments = ["submit", &ENDLESS.to_string(), "--spin", "4000", "--companion"];
    let id = cluster.json("tree", &arguments).unwrap()["job"].as_str().unwrap().to_owned();

    let display = wait_for_display(&cluster, &id);
    let rows = display["tables"][0]["rows"].as_array().unwrap();
    for (from, to) in [(&names[0], &names[1]), (&names[1], &names[0])] {
        let is_there = rows.iter().any(|row| row["from"] == **from && row["to"] == **to);
        assert!(is_there, "each node describes its part: {display}");
    }
    assert_eq!(
        display["pictures"],
        json!([{ "name": "greetings.svg", "label": "who greets", "format": "svg" }])
    );
    let text = cluster.run("taskwork", &["job", &id]).unwrap().out;
    let offer = "greeting --about NODE  the messages from a node";
    for part in ["messages ", "Greetings\nFROM", &names[0], offer, "greetings.svg"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let top = cluster.run("taskwork", &["top", "--job", &id]).unwrap();
    assert!(top.out.contains("messages "), "{top:?}");
    check_pages(&cluster, &id);
    check_documents(&cluster, &id, &names);
}

/// Checks the dashboard and the report.
fn check_pages(cluster: &Cluster, id: &str) {
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let address = observe::address(&mut dashboard);
    let page = observe::wait_for_page(&address, &format!("/api/job/{id}"), "greetings.svg");
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    let shown = &serde_json::from_str::<Value>(body).unwrap()["job"]["about"]["display"];
    assert!(is_complete(shown), "{shown}");
    let report = cluster.folder().join("report.html");
    let said = cluster.run("taskwork", &["report", id, "-o", report.to_str().unwrap()]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    let held = reports::held(&report);
    let shown = &held["view"]["snapshot"]["jobs"][id]["about"]["display"];
    let picture = shown["pictures"][0]["content"].as_str().unwrap();
    assert!(is_complete(shown) && picture.starts_with("<svg>"), "{shown}");
}

/// Checks the documents while the job runs and afterwards.
fn check_documents(cluster: &Cluster, id: &str, names: &[String; 2]) {
    let run = |arguments: &[&str]| cluster.run("taskwork", &[&["job", id], arguments].concat()).unwrap();
    for (of, other) in [(0, 1), (1, 0)] {
        let said = run(&["--show", "greeting", "--about", &names[of]]);
        let begins = format!("{} has heard ", names[other]);
        assert!(said.code == 0 && said.out.starts_with(&begins), "{said:?}");
    }
    let refused = run(&["--show", "greeting"]);
    assert!(
        refused.code == 2
            && refused.err.contains("does not provide greeting: --about takes the name of a node"),
        "{refused:?}"
    );
    let unknown = run(&["--show", "greeting.svg"]);
    assert!(unknown.code == 2 && unknown.err.contains("It has: greeting, greetings.svg"), "{unknown:?}");
    let file = cluster.folder().join("who.svg");
    let written = run(&["--show", "greetings.svg", "--output", file.to_str().unwrap()]);
    assert_eq!(written.code, 0, "{written:?}");
    assert!(fs::read_to_string(&file).unwrap().starts_with("<svg><text>"));
    assert_eq!(cluster.run("taskwork", &["cancel", id]).unwrap().code, 0);
    let over = run(&["--show", "greeting", "--about", &names[0]]);
    assert!(over.code != 0 && over.err.contains("only a running job can be asked"), "{over:?}");
}

#[test]
fn framework_columns_are_in_the_log() {
    let cluster = Cluster::shared().unwrap();
    let gate = Gate::closed(cluster.folder().join("gate")).unwrap();
    let solve = ["solve", "8", "--companion", "--nodes", "2", "--log-every", "0.05", "--gate", gate.path()];
    let mut solving = cluster.begin("tree", &solve).unwrap();
    let deadline = Instant::now() + SOON;
    // Each node has heard the greeting of the other one, and its answer.
    let has_count = |log: &str| {
        let head = log.lines().find(|line| line.contains("messages"))?;
        let column = head.trim_start_matches('#').split_whitespace().position(|name| name == "messages")?;
        let word = |line: &str| line.split_whitespace().nth(column)?.parse::<u64>().ok();
        log.lines().filter(|line| !line.contains('#')).filter_map(word).find(|count| *count > 0)
    };
    while has_count(&solving.errors()).is_none() {
        assert!(!solving.has_ended().unwrap() && Instant::now() < deadline, "{}", solving.errors());
        thread::sleep(Duration::from_millis(10));
    }
    gate.open().unwrap();
    let solved = solving.end().unwrap();
    assert!(solved.code == 0 && solved.err.contains("states   open messages done[%]"), "{solved:?}");
}
