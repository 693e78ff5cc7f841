//! Actions of an operator on the pages: the typed text is sent unchanged, the keyboard focus stays near the
//! action, and each page is signed in separately.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use crate::{browser::Browser, url};

const TOKEN: &str = "a-token-that-nobody-guesses";
/// A number that no browser can represent exactly.
const SUGGESTION: &str = "{\"set\": [9007199254740993]}";

/// Opens the panel of actions, which is initially closed.
async fn open_actions(browser: &Browser) {
    browser.wait_until("the panel is there", "document.getElementById('actions') !== null").await;
    browser.run("document.getElementById('actions').parentElement.open = true").await;
}

/// Fills in a form and sends it at once, like a password manager: nothing is drawn in between.
async fn fill_in(browser: &Browser, form: &str, text: &str) {
    let field = format!("document.querySelector('form[aria-label^={}]')", json!(form));
    browser.wait_until(form, &format!("{field} !== null")).await;
    let filled = format!(
        "const form = {field}; form.querySelector('input, textarea').value = {}; form.requestSubmit()",
        json!(text)
    );
    browser.run(&filled).await;
}

async fn press_button(browser: &Browser, text: &str) {
    let button = format!(
        "[...document.querySelectorAll('button')].find((one) => one.textContent.startsWith({}))",
        json!(text)
    );
    browser.wait_until(text, &format!("{button} !== undefined")).await;
    browser.run(&format!("{button}.click()")).await;
}

/// Reloads the page, after a script.
async fn reload(browser: &Browser, first: &str) {
    browser.run(&format!("window.isOld = true; {first}; location.reload()")).await;
    browser.wait_until("it is reloaded", "window.isOld === undefined").await;
}

async fn assert_focused(browser: &Browser, id: &str) {
    browser.wait_until("the focus", &format!("document.activeElement.id === {}", json!(id))).await;
}

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn operator_actions_work_in_browser() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 1, &["--workers", "1"]).unwrap();
    let said = cluster.run("tree", &["submit", "40", "--spin", "100"]).unwrap();
    assert_eq!(said.code, 0, "{}", said.err);
    let id = said.out.trim();
    let token = cluster.folder().join("anna");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["--allow-actions", "--operator-token-file", token.to_str().unwrap()];
    let arguments = [&["dashboard", "--listen", "127.0.0.1:0"], &options[..]].concat();
    let mut dashboard = cluster.begin("taskwork", &arguments).unwrap();
    let browser = Browser::start(1400, 1000).await;
    browser.open(&format!("{}#/job/{id}", url(&mut dashboard))).await;
    browser.wait_for("Rate of work").await;

    open_actions(&browser).await;
    browser.wait_for(&format!("taskwork cancel {id} --cluster default")).await;
    browser.wait_for("TASKWORK_ZK").await;
    fill_in(&browser, "Sign in", TOKEN).await;
    browser.wait_for("Signed in as anna").await;
    assert_focused(&browser, "actions").await;

    let listen = "window.sent = []; const ask = window.fetch;
        window.fetch = (path, options) => { if (options?.body) window.sent.push(options.body); return ask(path, options); }";
    browser.run(listen).await;
    press_button(&browser, "Inject").await;
    fill_in(&browser, "Inject", "{\"set\": [1,").await;
    browser.wait_for("That is no JSON").await;
    fill_in(&browser, "Inject", SUGGESTION).await;
    browser.wait_for("did not take it").await;
    let sent = browser.eval("window.sent").await;
    assert_eq!(sent, json!([format!("{{\"job\":\"{id}\",\"suggestion\":{SUGGESTION}}}")]));

    // The page stays signed in after a reload. Another page is not signed in, although it has the cookie.
    reload(&browser, "").await;
    open_actions(&browser).await;
    browser.wait_for("Signed in as anna").await;
    let kept = browser.eval("sessionStorage.getItem('taskwork-operator')").await;
    reload(&browser, "sessionStorage.clear()").await;
    let asks = "document.getElementById('operator-token') !== null";
    browser.wait_until("it is asked for a token", asks).await;
    reload(&browser, &format!("sessionStorage.setItem('taskwork-operator', {kept})")).await;
    open_actions(&browser).await;
    browser.wait_for("Signed in as anna").await;
    press_button(&browser, "Sign out").await;
    browser.wait_for("sign in with an operator").await;
    assert_focused(&browser, "actions").await;
    assert_eq!(browser.eval("sessionStorage.length").await, Value::from(0));

    // Properties of JavaScript objects are not names of pages.
    for name in ["constructor", "toString", "__proto__"] {
        browser.run(&format!("location.hash = '#/{name}'")).await;
        browser.wait_for("There is no such page").await;
        browser.run("location.hash = '#/jobs'").await;
        browser.wait_for("Owner").await;
    }
    assert_eq!(cluster.run("taskwork", &["cancel", id]).unwrap().code, 0);
    browser.end().await;
}
