//! The pages on the screen of a phone: no page is wider than the screen, and the names of the rows of tables stay
//! visible.

use serde_json::{Value, json};
use taskwork_tests::cluster::Cluster;
use zk_server::Setup;

use crate::{browser::Browser, picture, url};

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn pages_fit_the_screen_of_a_phone() {
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1", "--label", "zone=a"]).unwrap();
    assert_eq!(cluster.run("tree", &["submit", "14", "--wait"]).unwrap().code, 0);
    let submitted = cluster.run("tree", &["submit", "40", "--spin", "100", "--priority", "1"]).unwrap();
    let waits = ["submit", "40", "--name", "waits", "--after", submitted.out.trim()];
    assert_eq!(cluster.run("tree", &waits).unwrap().code, 0);
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let browser = Browser::phone().await;
    browser.open(&url(&mut dashboard)).await;
    let node = cluster.name_of(0).unwrap();
    let pages = [
        ("overview", String::new(), "Workers over time"),
        ("queue", "jobs".to_owned(), "Why it waits"),
        ("job", format!("job/{}", submitted.out.trim()), "Rate of work"),
        ("nodes", "nodes".to_owned(), "while observed"),
        ("node", format!("node/{node}"), "Workers over time"),
        ("servers", "zookeeper".to_owned(), "Outages"),
        ("costs", "costs".to_owned(), "What nodes did"),
        ("history", "history".to_owned(), "Took"),
    ];
    for (name, page, text) in pages {
        browser.run(&format!("location.hash = {}", json!(format!("#/{page}")))).await;
        browser.wait_for(text).await;
        picture(&browser, &format!("phone-{name}.png")).await;
        let widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]";
        assert_eq!(browser.eval(widths).await, json!([360, 360]), "{name}");
        let columns = "[...document.querySelectorAll('tbody th')].every((cell) => getComputedStyle(cell).position === 'sticky')";
        assert_eq!(browser.eval(columns).await, Value::Bool(true), "{name}: the first column stays");
    }
    browser.end().await;
}
