//! The page of a workflow shows its graph and its timeline without a click, and other documents on request.

use taskwork_tests::cluster::{Cluster, Running};
use zk_server::Setup;

use crate::{accessible, browser::Browser, picture, url};

/// An expression: the number of drawings that are shown.
const DRAWN: &str =
    "[...document.querySelectorAll('.drawing img')].filter((one) => one.naturalWidth > 100).length";

/// Starts a workflow whose calls wait at a gate, and a dashboard. Returns the address of the page.
fn page(cluster: &Cluster, gate: &str) -> (Running, String) {
    let submit = ["submit", "--width", "4", "--length", "2", "--gate", gate];
    let submitted = cluster.run("mesh", &submit).unwrap();
    assert_eq!(submitted.code, 0, "{}", submitted.err);
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let page = format!("{}#/job/{}", url(&mut dashboard), submitted.out.trim());
    (dashboard, page)
}

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn page_of_workflow_shows_graph_timeline_and_documents_on_request() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("mesh", 1, &["--workers", "4"]).unwrap();
    let gate = cluster.gate().unwrap();
    let (_dashboard, page) = page(&cluster, gate.path());
    let browser = Browser::start(1400, 1400).await;
    browser.open(&page).await;
    browser.wait_for("Calls by task").await;
    browser.wait_until("graph and timeline are shown", &format!("{DRAWN} === 2")).await;
    picture(&browser, "workflow.png").await;
    let click = |name: &str| {
        format!(
            "[...document.querySelectorAll('button')].find((one) => one.textContent === '{name}').click()"
        )
    };
    browser.run(&click("Show critical-path")).await;
    browser
        .wait_until(
            "the path is shown",
            "document.querySelector('pre')?.textContent.includes('begin') ?? false",
        )
        .await;
    gate.open().unwrap();
    browser.wait_for("Took").await;
    // The finished job has published them, with the table of its critical path.
    browser.wait_until("graph and timeline are still shown", &format!("{DRAWN} === 2")).await;
    browser.wait_for("Critical path").await;
    if let Some(axe) = accessible::script() {
        assert_eq!(accessible::look_at(&browser, &axe, "workflow").await, [""; 0]);
    }
    browser.end().await;
}

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn page_of_workflow_fits_the_screen_of_a_phone() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("mesh", 1, &["--workers", "4"]).unwrap();
    let gate = cluster.gate().unwrap();
    let (_dashboard, page) = page(&cluster, gate.path());
    let browser = Browser::phone().await;
    browser.open(&page).await;
    browser.wait_until("graph and timeline are shown", &format!("{DRAWN} === 2")).await;
    picture(&browser, "phone-workflow.png").await;
    let widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]";
    assert_eq!(browser.eval(widths).await, serde_json::json!([360, 360]));
    gate.open().unwrap();
    browser.end().await;
}
