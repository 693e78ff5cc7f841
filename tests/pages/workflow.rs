//! The page of a workflow shows the documents that its nodes make on request.

use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use crate::{browser::Browser, picture, url};

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn page_of_workflow_shows_documents_on_request() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("mesh", 1, &["--workers", "4"]).unwrap();
    let gate = cluster.gate().unwrap();
    let submit = ["submit", "--width", "4", "--length", "2", "--gate", gate.path()];
    let submitted = cluster.run("mesh", &submit).unwrap();
    assert_eq!(submitted.code, 0, "{}", submitted.err);
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let browser = Browser::start(1400, 1400).await;
    browser.open(&format!("{}#/job/{}", url(&mut dashboard), submitted.out.trim())).await;
    browser.wait_for("Calls by task").await;
    let press = |name: &str| {
        let button =
            format!("[...document.querySelectorAll('button')].find((one) => one.textContent === '{name}')");
        (format!("!!{button}"), format!("{button}.click()"))
    };
    let (is_there, click) = press("Show graph.svg");
    browser.wait_until("the graph is offered", &is_there).await;
    browser.run(&click).await;
    browser
        .wait_until("the graph is shown", "document.querySelector('.drawing img')?.naturalWidth > 100")
        .await;
    picture(&browser, "workflow.png").await;
    // The runs were not recorded.
    browser.run(&press("Show timeline.svg").1).await;
    browser.wait_for("by --trace").await;
    gate.open().unwrap();
    browser.wait_for("Took").await;
    browser.end().await;
}
