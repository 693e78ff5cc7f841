//! The dashboard's pages in a real Chromium, over a real cluster: they show the events of the cluster.
//!
//! `cargo xtask test --long` runs this, since the browser is a large package. With `TASKWORK_PICTURES=FOLDER`
//! screenshots of the pages are written to the folder.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod accessible;
mod actions;
mod browser;
mod phone;
mod workflow;

use std::{
    env,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use fantoccini::key::Key;
use serde_json::Value;
use taskwork_tests::cluster::{Cluster, Running, SOON};
use zk_server::Setup;

use crate::browser::Browser;

/// A malicious name of a job.
const NAME: &str = "<script>document.title='owned'</script>";

/// Returns the URL of a dashboard.
fn url(dashboard: &mut Running) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(place) = dashboard.output().split_whitespace().find(|word| word.starts_with("http://")) {
            return place.to_owned();
        }
        assert!(!dashboard.has_ended().unwrap() && Instant::now() < deadline, "{}", dashboard.errors());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Writes a screenshot of a page if they are enabled.
async fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = env::var_os("TASKWORK_PICTURES") {
        browser.picture(&PathBuf::from(folder).join(name)).await;
    }
}

/// Chooses a theme like a user.
async fn choose_theme(browser: &Browser, theme: &str) {
    let chosen = format!(
        "const select = document.querySelector('select'); select.value = '{theme}';
         select.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    );
    browser.run(&chosen).await;
}

/// Moves the focus by the keyboard until it is on a link to a page.
async fn focus_on(browser: &Browser, page: &str) {
    for _ in 0..100 {
        browser.press(Key::Tab).await;
        let focused = browser.eval("document.activeElement.getAttribute('href') ?? ''").await;
        if focused.as_str().is_some_and(|href| href.contains(page)) {
            let is_seen = browser.eval("document.activeElement.matches(':focus-visible')").await;
            assert_eq!(is_seen, Value::Bool(true), "the focus is visible");
            return;
        }
    }
    panic!("no link to {page} is reached by the keyboard");
}

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn browser_shows_cluster_events() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let browser = Browser::start(1400, 1000).await;
    browser.open(&url(&mut dashboard)).await;
    // Only ZooKeeper is running.
    browser.wait_for("No cluster yet").await;
    picture(&browser, "no-cluster.png").await;
    // A lost node is detected when its session has expired.
    let options = ["--workers", "1", "--zk-session-timeout", "1"];
    cluster.start_nodes("tree", 2, &options).unwrap();
    browser.wait_for("2 nodes").await;

    let submit = ["submit", "40", "--spin", "100", "--name", NAME];
    let said = cluster.run("tree", &submit).unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    let id = said.out.trim();
    browser.wait_for(NAME).await;
    browser.wait_for("1 job running").await;
    browser.wait_for("Workers over time").await;

    // The keyboard alone is enough to reach the page of the job.
    focus_on(&browser, &format!("job/{id}")).await;
    browser.press(Key::Enter).await;
    browser.wait_until("the page of the job", &format!("location.hash.includes('{id}')")).await;
    browser.wait_for("Rate of work").await;
    browser.wait_for("2 nodes").await;
    assert_ne!(browser.eval("document.title").await, "owned", "a name is displayed as text");

    // Nodes join and leave.
    cluster.start_nodes("tree", 1, &options).unwrap();
    let name = |cluster: &Cluster, node| cluster.name_of(node).unwrap();
    let third = name(&cluster, 2);
    let nodes = cluster.json("taskwork", &["nodes"]).unwrap();
    let host = nodes[0]["host"].as_str().unwrap();
    browser.wait_for(&format!("Node {third} on {host} has joined")).await;
    cluster.signal_nodes(&[2], "TERM").unwrap();
    cluster.nodes[2].wait().unwrap();
    browser.wait_for(&format!("Node {third} on {host} has left")).await;
    cluster.kill_nodes(&[1]).unwrap();
    browser.wait_for(&format!("Node {} on {host} was lost", name(&cluster, 1))).await;
    // A warning names the node, and can be dismissed.
    browser.run("location.hash = '#/'").await;
    let warning = "was lost; others continue its work";
    browser.wait_for(warning).await;
    let button = "[...document.querySelectorAll('.warnings button')].find((one) => one.textContent.includes('was lost'))";
    browser.run(&format!("{button}.click()")).await;
    let is_gone = format!("!document.body.innerText.includes('{warning}')");
    browser.wait_until("the warning is dismissed", &is_gone).await;
    browser.wait_for("dismissed warning").await;
    browser.run(&format!("location.hash = '#/job/{id}'")).await;
    browser.wait_for("Rate of work").await;

    // The server is stopped and restarted.
    cluster.servers_mut().kill(0).unwrap();
    browser.wait_for("ZooKeeper has not answered since").await;
    picture(&browser, "away.png").await;
    cluster.servers_mut().revive(0).unwrap();
    cluster.servers_mut().wait_until_serving(0).unwrap();
    browser.wait_until("it answers again", "!document.body.innerText.includes('has not answered')").await;

    // A user chooses both themes.
    let mut backgrounds = Vec::new();
    for theme in ["light", "dark"] {
        choose_theme(&browser, theme).await;
        picture(&browser, &format!("job-{theme}.png")).await;
        backgrounds.push(browser.eval("getComputedStyle(document.body).backgroundColor").await);
    }
    assert_ne!(backgrounds[0], backgrounds[1], "the themes differ");

    let said = cluster.run("taskwork", &["cancel", id]).unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    browser.wait_for("cancelled").await;
    browser.end().await;
}
