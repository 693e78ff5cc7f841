//! Accessibility of the pages for a keyboard, a screen reader and weak sight. axe-core checks each page in
//! both themes, and may find no serious violation.
//!
//! `cargo xtask test --long` installs axe-core, and passes its path in the variable `TASKWORK_AXE`.

use std::{env, fs, time::Duration};

use serde_json::{Value, json};
use taskwork_tests::cluster::{Cluster, Running};
use tokio::time::timeout;
use zk_server::Setup;

use crate::{browser::Browser, choose_theme, picture, url};

/// The maximum time for checking a page.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// Requirements of WCAG 2.2 that not every version of axe-core checks by default: the size of click targets,
/// and that the spoken label of a button reaches it.
const MORE: &str = "{ 'target-size': { enabled: true }, 'label-content-name-mismatch': { enabled: true } }";

/// Returns the script; if there is none, prints a warning and returns `None`.
pub(crate) fn script() -> Option<String> {
    let read = env::var_os("TASKWORK_AXE").map(fs::read_to_string);
    if let Some(Ok(script)) = read {
        return Some(script);
    }
    let what = "TASKWORK_AXE names no script that can be read: whether everybody can use the pages is NOT CHECKED. \
                cargo xtask test --long brings it";
    assert!(env::var_os("CI").is_none_or(|value| value != "true"), "{what}: {read:?}");
    eprintln!("!!! WARNING: {what}: {read:?}");
    None
}

/// Checks the displayed page, and returns the broken rules, each with its impact.
async fn look(browser: &Browser, axe: &str) -> Vec<(String, String)> {
    if browser.eval("typeof window.axe").await == "undefined" {
        browser.run(axe).await;
    }
    let looking = format!(
        "axe.run(document, {{ resultTypes: ['violations'], rules: {MORE} }}).then((found) => ({{
           rules: found.passes.length,
           broken: found.violations.map(({{ id, impact, help, nodes }}) => ({{
             rule: id, impact, help, where: nodes.slice(0, 4).map(({{ html, failureSummary }}) => [html, failureSummary]),
           }})),
         }}))"
    );
    let found = timeout(LOOK_MAX, browser.eval_later(&looking)).await.expect("axe-core looks at a page");
    assert!(found["rules"].as_u64() > Some(5), "it has looked at the page: {found}");
    let broken = found["broken"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for one in broken {
        println!("{one:#}");
    }
    broken.iter().map(|one| (text(&one["impact"]), text(&one["rule"]))).collect()
}

/// Checks a page in both themes, and returns the serious violations.
pub(crate) async fn look_at(browser: &Browser, axe: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for theme in ["light", "dark"] {
        choose_theme(browser, theme).await;
        picture(browser, &format!("{name}-{theme}.png")).await;
        let broken = look(browser, axe).await;
        println!("{name}, {theme}: {broken:?}");
        let serious = broken.into_iter().filter(|(impact, _)| impact == "serious" || impact == "critical");
        found.extend(serious.map(|(impact, rule)| format!("{name}, {theme}: {rule} ({impact})")));
    }
    found
}

/// Starts serving pages that require a token.
fn guarded(cluster: &Cluster) -> Running {
    let token = cluster.folder().join("token");
    fs::write(&token, "a-token-of-at-least-twenty-characters").unwrap();
    fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let arguments = ["dashboard", "--listen", "127.0.0.1:0", "--token-file", token.to_str().unwrap()];
    cluster.begin("taskwork", &arguments).unwrap()
}

#[tokio::test]
#[ignore = "it needs Chromium, which `cargo xtask test --long` installs"]
async fn pages_have_no_serious_accessibility_violation() {
    let Some(axe) = script() else { return };
    let mut cluster = Cluster::start(&Setup::standalone()).unwrap();
    cluster.start_nodes("tree", 2, &["--workers", "1"]).unwrap();
    assert_eq!(cluster.run("tree", &["submit", "14", "--wait"]).unwrap().code, 0);
    let submit = |arguments: &[&str]| {
        let said = cluster.run("tree", &[&["submit", "40", "--spin", "100"], arguments].concat()).unwrap();
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.trim().to_owned()
    };
    let running = submit(&[]);
    submit(&["--name", "waits", "--after", &running]);
    let mut dashboard = cluster.begin("taskwork", &["dashboard", "--listen", "127.0.0.1:0"]).unwrap();
    let url = url(&mut dashboard);
    let browser = Browser::start(1400, 1000).await;
    browser.open(&url).await;
    browser.wait_for("2 nodes").await;
    let runs = "/[1-9] jobs? running/.test(document.body.innerText)";
    browser.wait_until("a job runs", runs).await;
    let node = cluster.name_of(0).unwrap();
    let pages = [
        ("overview", String::new(), "Latest events"),
        ("queue", "jobs".to_owned(), "Why it waits"),
        ("job", format!("job/{running}"), "Rate of work"),
        ("nodes", "nodes".to_owned(), "while observed"),
        ("node", format!("node/{node}"), "Timeline"),
        ("servers", "zookeeper".to_owned(), "Outages"),
        ("costs", "costs".to_owned(), "What nodes did"),
        ("history", "history".to_owned(), "Took"),
        ("nothing", "nowhere".to_owned(), "There is no such page"),
    ];
    let mut found = Vec::new();
    for (name, page, text) in pages {
        browser.run(&format!("location.hash = {}", json!(format!("#/{page}")))).await;
        browser.wait_for(text).await;
        let drawn = "[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg'))";
        browser.wait_until("its charts are drawn", drawn).await;
        // Expand everything that can be expanded.
        browser
            .run("for (const button of document.querySelectorAll('[aria-expanded=false]')) button.click()")
            .await;
        let opened = "document.querySelectorAll('[aria-expanded=false]').length === 0";
        browser.wait_until("its tables are open", opened).await;
        found.extend(look_at(&browser, &axe, name).await);
    }
    let mut guarded = guarded(&cluster);
    browser.open(&format!("{}sign-in", self::url(&mut guarded))).await;
    browser.wait_for("Sign in").await;
    found.extend(look(&browser, &axe).await.into_iter().filter_map(|(impact, rule)| {
        (impact == "serious" || impact == "critical").then(|| format!("sign-in: {rule} ({impact})"))
    }));
    assert_eq!(found, [""; 0]);
    // Check that violations are detected: a field without a name must be found.
    browser.run("document.querySelector('label').remove()").await;
    assert!(look(&browser, &axe).await.contains(&("critical".to_owned(), "label".to_owned())));
    browser.end().await;
}
